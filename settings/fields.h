// The table of the config's fields and the functions that read it. Private to settings/; other
// folders use settings/config.h.
//
// The functions are local and reentrant. They add problems of a config to a Problems object and
// throw RequestError only where a comment says so.
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

// Text for the reference page and messages: fixed, or made from the constraints.
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
  bool above_min = false;  // excludes min itself
  bool below_max = false;  // excludes max itself
  bool or_zero = false;    // also allows 0
};

template <class T>
using Member = std::function<T&(Config&)>;

using AnyMember =
    std::variant<Member<bool>, Member<std::int64_t>, Member<std::optional<std::int64_t>>,
                 Member<double>, Member<std::optional<double>>, Member<std::string>,
                 Member<std::vector<std::int64_t>>, Member<std::vector<std::string>>,
                 Member<std::map<std::string, std::string>>, Member<std::array<double, 2>>,
                 Member<std::vector<DataSource>>, Member<std::vector<ValidationSet>>,
                 Member<std::vector<ParamGroup>>>;

// One key of the config. Its constant default is the member's initialiser in config.h.
struct Field {
  std::string path;  // JSON pointer
  AnyMember member;
  Text doc;
  std::string unit = {};
  Range range = {};  // of a number, or of each number of a list
  // Valid values of a string or of each string of a list. For other types: words that may stand in
  // place of the value.
  std::vector<Choice> choices = {};
  std::function<std::vector<std::string>(const ConfigConstraints&)> kinds =
      {};                       // the names in a registry, added to `choices`
  Text derived = {};            // how the default is derived; a key with this text may be null
  bool number_is_text = false;  // a string field also accepts a number and keeps its digits
  // A list of integers also accepts one number n, which resolve() finds as {-n}.
  bool number_is_list = false;
  bool required = false;
};

// Every field, in the order of the documentation.
const std::vector<Field>& fields();

// A section with its one-line description; path "" stands for the top level.
struct Section {
  std::string path;
  std::string doc;
  std::string word = {};  // a word that may stand in place of the keys; "": none
};
const std::vector<Section>& sections();

// The choices of a field: its own, then those of its registry.
std::vector<Choice> choices_of(const Field& field, const ConfigConstraints& constraints);

// "an integer, at least 1"; "one of "a", "b""; ….
std::string expected(const Field& field, const ConfigConstraints& constraints);

// The value of a field as JSON; null where it is "none" or not derived yet.
nlohmann::ordered_json value_of(const Field& field, const Config& config);
// The constant default as JSON.
nlohmann::ordered_json usual_value(const Field& field);

// Whether the field's values are integers or lists of integers.
bool is_integer(const Field& field);

// Whether the field's choices are words in place of a value of another type.
bool has_words(const Field& field);

// The leaf of "/model/hidden_size" is "hidden_size", its parent "/model".
inline std::string leaf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}
inline std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// A section of a filled-in config that has no fields.
inline constexpr auto kDerived = "derived";

// Paths of the keys that the file or an override sets.
using Given = std::set<std::string, std::less<>>;

// The value in a document at a path; nullptr if there is none.
const nlohmann::json* find(const nlohmann::json& document, std::string_view path);

// Applies the overrides to a document. Where the document has a section "derived", also derives
// anew the values that are out of date after overrides or edits. Returns the document as it was
// written, with the overrides. Throws RequestError.
nlohmann::json override_document(nlohmann::json& document,
                                 const std::vector<std::string>& overrides,
                                 const LoadOptions& options, const std::string& name);

// Turns a filled-in config back into the written one, later edits included. Returns any other
// document unchanged. Throws RequestError.
nlohmann::json as_written(nlohmann::json document);

// `written` as text, in the order of fields().
std::string written_text(const nlohmann::json& written);

// Sets each "a.b=value" in the document; null removes the key. Throws RequestError.
void apply_overrides(nlohmann::json& document, const std::vector<std::string>& overrides);

// Whether the value of /parallel is the section's word, "auto".
bool has_parallel_word(const nlohmann::json& document);

// Reports unknown keys, and sections that aren't objects.
void check_keys(const nlohmann::json& document, Problems& problems);

// The text of a value in a problem.
std::string shown(const nlohmann::json& value);

// Reads every field of the document into `config` and checks types, ranges and choices. Requires
// config.constraints. Returns the keys that the document has.
Given read_fields(const nlohmann::json& document, Config& config, Problems& problems);

// Fills in the values that follow from other keys.
void resolve(Config& config, const Given& given, const LoadOptions& options,
             const std::string& name, Problems& problems);

// Switches off keys without effect in the layout (settings/ineffective_keys.h). resolve() calls it
// before it fills in the values that follow from these keys.
void switch_off_ineffective_keys(Config& config, const Problems& problems);

// Reads a document into `config` and fills in derived values. It does not check the constraints
// between fields. Returns false where the document could not be read that far; then `problems` has
// a line, and no field is sound.
bool fill_in(const nlohmann::json& document, const LoadOptions& options, const std::string& name,
             Config& config, Problems& problems);

// Checks the constraints between fields of a resolved config.
void validate(const Config& config, Problems& problems);
// The parts of validate().
void validate_model(const Config& config, Problems& problems);
void validate_experts(const Config& config, Problems& problems);
void validate_tensor_parallel(const Config& config, Problems& problems);
void validate_context_parallel(const Config& config, Problems& problems);
void validate_pipeline(const Config& config, Problems& problems);
void validate_layout(const Config& config, Problems& problems);
void validate_zero(const Config& config, Problems& problems);
void validate_optimizer(const Config& config, Problems& problems);
void validate_precision(const Config& config, Problems& problems);
void validate_fp16_schedule(const Config& config, Problems& problems);

// The names of the axes that have a config key, in the default order of parallel.rank_order.
std::vector<std::string> ordered_axes(const ParallelConfig& parallel);
// Whether the sizes of all axes with a config key are sound.
bool axes_sound(const ParallelConfig& parallel, const Problems& problems);

// Fills in the learning-rate schedule's numbers that follow from training.train_iters, if that is
// set.
void resolve_iterations(Config& config);
void validate_iterations(const Config& config, Problems& problems);

// "949,50,1" as fractions of its sum; nullopt where the text is malformed.
std::optional<std::array<double, 3>> parse_split(const std::string& split);

}  // namespace trident::config_detail
