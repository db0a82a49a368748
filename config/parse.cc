// From JSON to the members of Config: overrides, unknown keys, types, ranges and choices.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/fields.h"
#include "core/error.h"
#include "core/json.h"
#include "core/nearest.h"
#include "core/printable.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::json;

// A value as it is shown in an error.
std::string shown(const json& value) {
  return printable(json_text(value), 60);
}

std::optional<std::int64_t> as_integer(const json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: 5e8 is an integer, 0.5 and 1e300 aren't
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) <= kExact) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

bool in_range(double value, const Range& range) {
  if (range.or_zero && value == 0) return true;
  if (range.min && (range.above_min ? value <= *range.min : value < *range.min)) return false;
  if (range.max && (range.below_max ? value >= *range.max : value > *range.max)) return false;
  return true;
}

// Reads one field; every problem goes to `problems`, and then the member keeps its default.
class Reader {
 public:
  Reader(const std::vector<std::string>& architectures, Config& config, Problems& problems)
      : architectures_(architectures), config_(config), problems_(problems) {}

  void read(const Field& field, const json& value) {
    std::visit([&](const auto& member) { read(field, value, member(config_)); }, field.member);
    if (field.later.empty() || !problems_.sound(field.path)) return;
    const json usual = value_of(field, Config{});
    if (value_of(field, config_) == usual) return;
    problems_.add(
        field.path,
        fmt::format("{} is not available yet (it comes with {}); leave it out{}", shown(value),
                    field.later, usual.is_null() ? "" : fmt::format(" or give {}", shown(usual))));
  }

 private:
  void mismatch(const Field& field, const json& value) {
    problems_.add(field.path,
                  fmt::format("{} is not {}", shown(value), expected(field, architectures_)));
  }

  void read(const Field& field, const json& value, bool& member) {
    if (!value.is_boolean()) return mismatch(field, value);
    member = value.get<bool>();
  }

  void read(const Field& field, const json& value, std::int64_t& member) {
    if (value.is_string() && !field.choices.empty()) {
      // Resolved later: no number is "even", a zero "auto".
      if (read_word(field, value) && value == "auto") member = {0};
      return;
    }
    const auto number = as_integer(value);
    if (!number || !in_range(static_cast<double>(*number), field.range)) {
      return mismatch(field, value);
    }
    member = *number;
  }

  void read(const Field& field, const json& value, double& member) {
    if (!value.is_number() || !in_range(value.get<double>(), field.range)) {
      return mismatch(field, value);
    }
    member = value.get<double>();
  }

  void read(const Field& field, const json& value, std::string& member) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return mismatch(field, value);
    }
    if (choices_of(field, architectures_).empty() || read_word(field, value)) {
      member = value.get<std::string>();
    }
  }

  void read(const Field& field, const json& value, std::vector<std::int64_t>& member) {
    if (value.is_string() && !field.choices.empty()) {
      // Resolved later: no number is "even", a zero "auto".
      if (read_word(field, value) && value == "auto") member = {0};
      return;
    }
    // An empty list is one of no iterations, but no split of layers.
    if (!value.is_array() || (value.empty() && !field.choices.empty())) {
      return mismatch(field, value);
    }
    std::vector<std::int64_t> numbers;
    for (const json& element : value) {
      const auto number = as_integer(element);
      if (!number || !in_range(static_cast<double>(*number), field.range)) {
        return mismatch(field, value);
      }
      numbers.push_back(*number);
    }
    member = std::move(numbers);
  }

  void read(const Field& field, const json& value, std::array<double, 2>& member) {
    const auto fits = [&](const json& element) {
      return element.is_number() && in_range(element.get<double>(), field.range);
    };
    if (!value.is_array() || value.size() != 2 || !std::all_of(value.begin(), value.end(), fits)) {
      return mismatch(field, value);
    }
    member = {value[0].get<double>(), value[1].get<double>()};
  }

  void read(const Field& field, const json& value, std::vector<DataSource>& member) {
    member = read_sources(field, field.path, value);
  }

  void read(const Field& field, const json& value, std::vector<ValidationSet>& member) {
    if (!value.is_object()) {
      member = {{.name = "", .sources = read_sources(field, field.path, value)}};
      return;
    }
    if (value.empty() || value.contains("")) return mismatch(field, value);
    for (const auto& [name, sources] : value.items()) {
      member.push_back({name, read_sources(field, json_pointer_append(field.path, name), sources)});
    }
  }

  // A choice that is known and available.
  bool read_word(const Field& field, const json& value) {
    const auto& word = value.get_ref<const std::string&>();
    std::vector<std::string> known;
    std::vector<std::string> available;
    for (const Choice& choice : choices_of(field, architectures_)) {
      if (choice.name == word && choice.later.empty()) return true;
      known.push_back(choice.name);
      if (choice.later.empty()) available.push_back('"' + choice.name + '"');
    }
    for (const Choice& choice : choices_of(field, architectures_)) {
      if (choice.name != word) continue;
      const bool is_word = !std::holds_alternative<Member<std::string>>(field.member);
      if (is_word) available.insert(available.begin(), "a number");
      problems_.add(field.path, fmt::format("{} is not available yet (it comes with {}); use {}",
                                            shown(value), choice.later, list_or(available)));
      return false;
    }
    problems_.add(field.path, fmt::format("{} is not {}; did you mean \"{}\"?", shown(value),
                                          expected(field, architectures_), nearest(word, known)));
    return false;
  }

  std::vector<DataSource> read_sources(const Field& field, const std::string& path,
                                       const json& value) {
    const auto fail = [&](const std::string& where, const std::string& what) {
      problems_.add(where, what);
      problems_.spoil(field.path);
    };
    if (!value.is_array() || value.empty()) {
      fail(path, fmt::format("{} is not a list of sources such as [{{\"path\": \"text.txt\"}}]",
                             shown(value)));
      return {};
    }
    std::vector<DataSource> sources;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string at = fmt::format("{}/{}", path, i);
      const json& entry = value[i];
      if (!entry.is_object()) {
        fail(at, fmt::format("{} is not an object with path and weight", shown(entry)));
        continue;
      }
      DataSource source;
      for (const auto& [key, part] : entry.items()) {
        const std::string where = json_pointer_append(at, key);
        if (key == "path") {
          if (part.is_string() && !part.get_ref<const std::string&>().empty()) {
            source.path = part.get<std::string>();
          } else {
            fail(where, fmt::format("{} is not a path", shown(part)));
          }
        } else if (key == "weight") {
          if (part.is_number() && part.get<double>() > 0) {
            source.weight = part.get<double>();
          } else {
            fail(where, fmt::format("{} is not a number above 0", shown(part)));
          }
        } else {
          fail(where,
               fmt::format("unknown key; did you mean {}?", nearest(key, {"path", "weight"})));
        }
      }
      if (!entry.contains("path")) fail(at, "has no path; it must name a file");
      sources.push_back(std::move(source));
    }
    return sources;
  }

  const std::vector<std::string>& architectures_;
  Config& config_;
  Problems& problems_;
};

// The place that an unknown key was probably meant for: the nearest of its own section, unless a
// key of another section is nearer.
std::string suggestion(const std::string& section, const std::string& key) {
  std::string best;
  std::size_t best_distance = SIZE_MAX;
  const auto consider = [&](const std::string& name, const std::string& shown_name,
                            std::size_t handicap) {
    const std::size_t distance = edit_distance(key, name) + handicap;
    if (distance < best_distance) {
      best_distance = distance;
      best = shown_name;
    }
  };
  const auto consider_path = [&](const std::string& path) {
    const auto slash = path.rfind('/');
    const bool sibling = path.substr(0, slash) == section;
    consider(path.substr(slash + 1), sibling ? path.substr(slash + 1) : path, sibling ? 0 : 1);
  };
  for (const Section& other : sections()) {
    if (!other.path.empty()) consider_path(other.path);
  }
  for (const Field& field : fields()) consider_path(field.path);
  return best;
}

// What DeepSpeed has in zero_optimization beside our fields.
constexpr std::string_view unsupported_zero_settings[] = {
    "allgather_partitions",
    "contiguous_gradients",
    "cpu_offload",
    "elastic_checkpoint",
    "ignore_unused_parameters",
    "load_from_fp32_weights",
    "log_trace_cache_warnings",
    "memory_efficient_linear",
    "mics_hierarchical_params_gather",
    "mics_shard_size",
    "offload_optimizer",
    "offload_param",
    "pipeline_loading_checkpoint",
    "reduce_scatter",
    "round_robin_gradients",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_model_persistence_threshold",
    "stage3_module_granularity_threshold",
    "stage3_use_all_reduce_for_fetch_params",
    "sub_group_size",
    "use_multi_rank_bucket_allreduce",
    "zero_hpz_partition_size",
    "zero_quantized_gradients",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_weights"};

bool is_unsupported(std::string_view section, std::string_view key) {
  return section == "/zero_optimization" &&
         std::find(std::begin(unsupported_zero_settings), std::end(unsupported_zero_settings),
                   key) != std::end(unsupported_zero_settings);
}

// Looks for keys that no field has, and for sections that aren't objects.
void check_keys(const json& object, const std::string& section, Problems& problems) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = json_pointer_append(section, key);
    const auto names_it = [&](const auto& entry) { return entry.path == path; };
    if (std::any_of(fields().begin(), fields().end(), names_it)) continue;
    if (std::none_of(sections().begin(), sections().end(), names_it)) {
      problems.add(path,
                   is_unsupported(section, key)
                       ? "this setting of DeepSpeed is not supported; leave it out"
                       : fmt::format("unknown key; did you mean {}?", suggestion(section, key)));
    } else if (!value.is_object()) {
      problems.add(path, fmt::format("{} is not an object of keys", shown(value)));
    } else {
      check_keys(value, path, problems);
    }
  }
}

void apply_override(json& document, const std::string& text) {
  const auto fail = [&](const std::string& what) {
    throw RequestError(fmt::format("config: --set {}: {}", text, what));
  };
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) fail("must be key.key=value");
  const std::string path = text.substr(0, equals);
  const std::string value_text = text.substr(equals + 1);
  json value;
  try {
    value = parse_json(value_text, "--set");
  } catch (const RequestError&) {
    value = value_text;
  }
  try {
    (void)json(text).dump();
  } catch (const json::exception&) {
    throw RequestError("config: --set: an override is not UTF-8");
  }

  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto dot = std::min(path.find('.', begin), path.size());
    keys.push_back(path.substr(begin, dot - begin));
    if (keys.back().empty()) fail("a key between the dots is empty");
    begin = dot + 1;
  }
  if (keys.size() > kMaxJsonDepth) fail("too many keys");

  json* at = &document;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool last = i + 1 == keys.size();
    if (at->is_array()) {
      std::size_t index = 0;
      const char* end = keys[i].data() + keys[i].size();
      const auto [stop, code] = std::from_chars(keys[i].data(), end, index);
      if (code != std::errc{} || stop != end || index >= at->size()) {
        fail(fmt::format("\"{}\" is not an element of a list of {} (they count from 0)", keys[i],
                         at->size()));
      }
      at = &(*at)[index];
    } else {
      if (at->is_null()) *at = json::object();
      if (!at->is_object()) fail(fmt::format("\"{}\" is below a value that has no keys", keys[i]));
      if (last && value.is_null()) {
        at->erase(keys[i]);
        return;
      }
      at = &(*at)[keys[i]];
    }
  }
  *at = std::move(value);
}

}  // namespace

const json* find(const json& document, std::string_view path) {
  const json* at = &document;
  while (!path.empty()) {
    path.remove_prefix(1);
    const auto slash = path.find('/');
    const std::string key(path.substr(0, slash));
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash);
  }
  return at;
}

void apply_overrides(json& document, const std::vector<std::string>& overrides) {
  std::vector<std::string> problems;
  for (const std::string& text : overrides) {
    try {
      apply_override(document, text);
    } catch (const RequestError& error) {
      problems.emplace_back(error.what());
    }
  }
  if (!problems.empty()) throw RequestError(problems);
}

Given read_fields(const json& document, const std::vector<std::string>& architectures,
                  Config& config, Problems& problems) {
  check_keys(document, "", problems);
  Given given;
  Reader reader(architectures, config, problems);
  for (const Field& field : fields()) {
    const json* value = find(document, field.path);
    if (value != nullptr && !(value->is_null() && !field.derived.empty())) {
      given.insert(field.path);
      reader.read(field, *value);
    } else if (field.required) {
      problems.add(field.path,
                   fmt::format("is missing; it must be {}", expected(field, architectures)));
    }
  }
  return given;
}

}  // namespace config_detail

LoadedConfig parse_config(std::string_view text, const std::vector<std::string>& overrides,
                          const LoadOptions& options, const std::string& name) {
  using namespace config_detail;
  nlohmann::json document;
  try {
    document = parse_json(text, name);
  } catch (const RequestError& error) {
    throw RequestError(fmt::format("config: {}", error.what()));
  }
  if (!document.is_object()) {
    throw RequestError(fmt::format("config: {}: the document must be an object of sections", name));
  }
  const nlohmann::json written = override_document(document, overrides, options, name);

  LoadedConfig loaded;
  Problems problems;
  loaded.config.parallel.more_axes = options.more_axes;
  const Given given = read_fields(document, options.architectures, loaded.config, problems);
  resolve(loaded.config, given, options, name, problems);
  validate(loaded.config, problems);
  if (!problems.lines().empty()) throw RequestError(problems.lines());
  loaded.written = written_text(written);
  loaded.filled_in = config_to_json(loaded.config, loaded.written);
  const auto* micro = find(document, "/batch/micro_batch_size");
  loaded.micro_batch_is_auto = micro != nullptr && *micro == "auto";
  const auto* device = find(document, "/runtime/device");
  loaded.device_is_auto = device == nullptr || *device == "auto";
  const auto* accumulation = find(document, "/batch/gradient_accumulation_steps");
  loaded.accumulation_is_given = accumulation != nullptr && !accumulation->is_null();
  return loaded;
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         const LoadOptions& options) {
  std::string text;
  try {
    text = read_text_file(path);
  } catch (const RequestError& error) {
    throw RequestError(fmt::format("config: {}", error.what()));
  }
  return parse_config(text, overrides, options, path);
}

}  // namespace trident
