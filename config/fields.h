// The table of the config's fields and the pieces that read it. Private to config/: the
// contract for everybody else is config/config.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace trident::config_detail {

// A name that a field may take. `later` says which coming feature brings it; "" means available.
struct Choice {
  std::string name;
  std::string later = {};
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
    std::variant<Member<bool>, Member<std::int64_t>, Member<double>, Member<std::string>,
                 Member<std::vector<std::int64_t>>, Member<std::array<double, 2>>,
                 Member<std::vector<DataSource>>, Member<std::vector<ValidationSet>>>;

// One key of the config. Its constant default is the member's initialiser in config.h.
struct Field {
  std::string path;  // JSON pointer
  AnyMember member;
  std::string doc;
  std::string unit = {};
  Range range = {};                  // of a number, or of each number of a list
  std::vector<Choice> choices = {};  // of a string; of another type: words in place of the value
  std::string derived = {};          // where the default follows from; such a key may be null
  bool required = false;
  std::string later =
      {};  // the coming feature that reads this key; till then only the default goes
};

// Every field, in the order of the documentation.
const std::vector<Field>& fields();

// A section with its one-line description; path "" stands for the top level.
struct Section {
  std::string path;
  std::string doc;
};
const std::vector<Section>& sections();

// The choices of a field; model.architecture takes `architectures`.
std::vector<Choice> choices_of(const Field& field, const std::vector<std::string>& architectures);

// "an integer, at least 1"; "one of "a", "b""; ….
std::string expected(const Field& field, const std::vector<std::string>& architectures);

// The value of a field as JSON; null where it is "none" or still to be derived.
nlohmann::ordered_json value_of(const Field& field, const Config& config);

// The section of a filled-in config that no field has.
inline constexpr auto kDerived = "derived";

// Everything wrong with a config, and which fields can't be relied on by later checks.
class Problems {
 public:
  // Reports a problem at `path` and takes `path` for unsound.
  void add(std::string_view path, const std::string& what);
  // `path` has no usable value because of a problem reported elsewhere.
  void spoil(std::string_view path) { unsound_.emplace(path); }
  bool sound(std::string_view path) const { return !unsound_.contains(path); }
  bool sound(std::initializer_list<std::string_view> paths) const;
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  std::set<std::string, std::less<>> unsound_;
};

// Paths of the keys that the file or an override gave.
using Given = std::set<std::string, std::less<>>;

// What a document holds at a path; nullptr: nothing.
const nlohmann::json* find(const nlohmann::json& document, std::string_view path);

// Applies the overrides to a document, and undoes what "derived" tells of values that overrides or
// edits have overtaken. Gives what people wrote, with the overrides. Throws RequestError.
nlohmann::json override_document(nlohmann::json& document,
                                 const std::vector<std::string>& overrides,
                                 const LoadOptions& options, const std::string& name);

// `written` as text, in the order of fields().
std::string written_text(const nlohmann::json& written);

// Sets each "a.b=value" in the document; null removes the key. Throws RequestError.
void apply_overrides(nlohmann::json& document, const std::vector<std::string>& overrides);

// Reads every field of the document into `config`; unknown keys, types, ranges and choices.
Given read_fields(const nlohmann::json& document, const std::vector<std::string>& architectures,
                  Config& config, Problems& problems);

// Fills in what follows from other keys.
void resolve(Config& config, const Given& given, const LoadOptions& options,
             const std::string& name, Problems& problems);

// The rules between fields, on a resolved config.
void validate(const Config& config, Problems& problems);

// The learning-rate schedule's numbers that follow from training.train_iters, if that is set.
void resolve_iterations(Config& config);
void validate_iterations(const Config& config, Problems& problems);

// "949,50,1" as fractions of its sum; nothing where it is malformed.
std::optional<std::array<double, 3>> parse_split(const std::string& split);

// "1, 2 or 4".
std::string list_or(const std::vector<std::string>& names);
// The divisors of n that are nearest to `value`, at most six, as a list.
std::string divisors_near(std::int64_t n, std::int64_t value);
// The positive multiples of `unit` around `value`: "12 or 16".
std::string multiples_near(std::int64_t unit, std::int64_t value);

}  // namespace trident::config_detail
