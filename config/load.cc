// A config from a file to the values with which a run works.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/fields.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace trident {
namespace {

constexpr std::uint64_t kMaxConfig = 16 << 20;  // bytes

}  // namespace

void config_detail::fill_in(const nlohmann::json& document, const LoadOptions& options,
                            const std::string& name, Config& config, Problems& problems) {
  config.rules = options.rules;
  config.parallel.more_axes = options.more_axes;
  check_keys(document, problems);
  resolve(config, read_fields(document, config, problems), options, name, problems);
}

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
  if (!options.rules) throw Error("parse_config: LoadOptions::rules is missing");
  const nlohmann::json written = override_document(document, overrides, options, name);

  LoadedConfig loaded;
  Problems problems;
  fill_in(document, options, name, loaded.config, problems);
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
    text = read_stream(path, kMaxConfig);
    if (text.empty()) throw RequestError(path + ": is empty");
  } catch (const RequestError& error) {
    throw RequestError(fmt::format("config: {}", error.what()));
  }
  return parse_config(text, overrides, options, path);
}

}  // namespace trident
