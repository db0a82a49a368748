// The table of the config's fields and the pieces that read it. Private to settings/: the
// contract for everybody else is settings/config.h.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "settings/config.h"
#include "settings/constraints.h"
#include "settings/problems.h"

namespace trident::config_detail {

using Problems = ConfigProblems;

// Text of the reference page and of messages: fixed, or made from what the rooms' tables say.
class Text {
 public:
  using Make = std::function<std::string(const ConfigConstraints&)>;
  Text() = default;
  Text(const char* text) : Text(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Text(std::string text) : text_(std::move(text)) {}   // NOLINT(google-explicit-constructor)
  template <class Maker>
  requires std::is_invocable_r_v<std::string, Maker, const ConfigConstraints&> Text(Maker make)
      : make_(std::move(make)) {}  // NOLINT(google-explicit-constructor)

  bool empty() const { return text_.empty() && !make_; }
  std::string operator()(const ConfigConstraints& constraints) const {
    return make_ ? make_(constraints) : text_;
  }

 private:
  std::string text_;
  Make make_;
};

// A name that a field may take.
struct Choice {
  std::string name;
};

struct Range {
  std::optional<double> min = {};
  std::optional<double> max = {};
  bool above_min = false;  // min itself is out
  bool below_max = false;  // max itself is out
  bool or_zero = false;    // 0 is in, too
};

template <class T>
using Member = std::function<T&(Config&)>;

using AnyMember =
    std::variant<Member<bool>, Member<std::int64_t>, Member<std::optional<std::int64_t>>,
                 Member<double>, Member<std::string>, Member<std::vector<std::int64_t>>,
                 Member<std::vector<std::string>>, Member<std::map<std::string, std::string>>,
                 Member<std::array<double, 2>>, Member<std::vector<DataSource>>,
                 Member<std::vector<ValidationSet>>, Member<std::vector<ParamGroup>>>;

// One key of the config. Its constant default is the member's initialiser in config.h.
struct Field {
  std::string path;  // JSON pointer
  AnyMember member;
  Text doc;
  std::string unit = {};
  Range range = {};  // of a number, or of each number of a list
  // Of a string, or of each of a list of these; of another type: words in place of the value.
  std::vector<Choice> choices = {};
  std::function<std::vector<std::string>(const ConfigConstraints&)> kinds =
      {};                       // choices of a table
  Text derived = {};            // where the default follows from; such a key may be null
  bool number_is_text = false;  // of a string: a whole number counts as its digits
  bool required = false;
};

// Every field, in the order of the documentation.
const std::vector<Field>& fields();

// A section with its one-line description; path "" stands for the top level.
struct Section {
  std::string path;
  std::string doc;
  std::string word = {};  // that may stand in place of its keys; "": none
};
const std::vector<Section>& sections();

// The choices of a field, those of a table after its own.
std::vector<Choice> choices_of(const Field& field, const ConfigConstraints& constraints);

// "an integer, at least 1"; "one of "a", "b""; ….
std::string expected(const Field& field, const ConfigConstraints& constraints);

// The value of a field as JSON; null where it is "none" or still to be derived.
nlohmann::ordered_json value_of(const Field& field, const Config& config);

// Values are whole numbers, or lists of such.
bool is_integer(const Field& field);

// Choices are words in place of a value of another type.
bool has_words(const Field& field);

// "/model/hidden_size" is "hidden_size" of "/model".
inline std::string leaf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}
inline std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// The section of a filled-in config that no field has.
inline constexpr auto kDerived = "derived";

// Paths of the keys that the file or an override gave.
using Given = std::set<std::string, std::less<>>;

// What a document holds at a path; nullptr: nothing.
const nlohmann::json* find(const nlohmann::json& document, std::string_view path);

// Applies the overrides to a document, and undoes what "derived" tells of values that overrides or
// edits have overtaken. Gives what people wrote, with the overrides. Throws RequestError.
nlohmann::json override_document(nlohmann::json& document,
                                 const std::vector<std::string>& overrides,
                                 const LoadOptions& options, const std::string& name);

// A filled-in config as it was written, what has been edited since in it; any other as it is.
nlohmann::json as_written(nlohmann::json document);

// `written` as text, in the order of fields().
std::string written_text(const nlohmann::json& written);

// Sets each "a.b=value" in the document; null removes the key. Throws RequestError.
void apply_overrides(nlohmann::json& document, const std::vector<std::string>& overrides);

// Whether /parallel is its word.
bool has_parallel_word(const nlohmann::json& document);

// Looks for keys that no field has, and for sections that aren't objects.
void check_keys(const nlohmann::json& document, Problems& problems);

// A value as it is shown in a problem.
std::string shown(const nlohmann::json& value);

// Reads every field of the document into `config`, whose rules are set; types, ranges and choices.
Given read_fields(const nlohmann::json& document, Config& config, Problems& problems);

// Fills in what follows from other keys.
void resolve(Config& config, const Given& given, const LoadOptions& options,
             const std::string& name, Problems& problems);

// Takes back what has no effect in the layout (settings/ineffective_keys.h), before what follows
// from it is filled in.
void switch_off_ineffective_keys(Config& config, const Problems& problems);

// Reads a document into `config` and fills in what follows: all but the rules between fields. False
// where it could not be read as far as that; then there is a problem, and no field is sound.
bool fill_in(const nlohmann::json& document, const LoadOptions& options, const std::string& name,
             Config& config, Problems& problems);

// The rules between fields, on a resolved config.
void validate(const Config& config, Problems& problems);
// Its parts.
void validate_model(const Config& config, Problems& problems);
void validate_tensor_parallel(const Config& config, Problems& problems);
void validate_pipeline(const Config& config, Problems& problems);
void validate_layout(const Config& config, Problems& problems);
void validate_zero(const Config& config, Problems& problems);
void validate_optimizer(const Config& config, Problems& problems);
void validate_precision(const Config& config, Problems& problems);
void validate_fp16_schedule(const Config& config, Problems& problems);

// The names of the axes, in the order that parallel.rank_order has by default, then those that it
// may leave out.
std::vector<std::string> ordered_axes(const ParallelConfig& parallel);
// Whether the sizes of all axes that a file gives are sound.
bool axes_sound(const Config& config, const Problems& problems);

// The learning-rate schedule's numbers that follow from training.train_iters, if that is set.
void resolve_iterations(Config& config);
void validate_iterations(const Config& config, Problems& problems);

// "949,50,1" as fractions of its sum; nothing where it is malformed.
std::optional<std::array<double, 3>> parse_split(const std::string& split);

}  // namespace trident::config_detail
