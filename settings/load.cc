// Loads a config: from its file to the final values of a run.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace {

// Adds the keys of the weights' experts that the document leaves out.
void take_experts(const nlohmann::json& saved, bool other_layers, nlohmann::json& moe) {
  if (moe.is_null()) moe = nlohmann::json::object();
  if (!moe.is_object()) return;
  // A config that gives the factor of the balancing loss asks for the loss.
  const bool asks = moe.contains("aux_loss_coeff") && moe["aux_loss_coeff"] != 0;
  for (const auto& [key, value] : saved.items()) {
    const bool left_out =
        (key == "layer_freq" && other_layers) || (key == "router_load_balancing_type" && asks);
    if (!moe.contains(key) && !left_out) moe[key] = value;
  }
}

// Adds the keys of the weights' rotary scaling that the document leaves out, where it has no other
// type.
void take_rope_scaling(const nlohmann::json& saved, nlohmann::json& scaling) {
  if (!scaling.is_object() || !saved.is_object()) return;
  constexpr auto type = "rope_type";
  if (scaling.contains(type) && (!saved.contains(type) || scaling[type] != saved.at(type))) return;
  for (const auto& [key, value] : saved.items()) {
    if (!scaling.contains(key)) scaling[key] = value;
  }
}

// Adds model keys that the document leaves out, from the weights that the run begins with. Returns
// nullopt, with no field sound, where the document needs these keys and the weights lack them.
std::optional<nlohmann::json> with_saved_model(nlohmann::json document, const LoadOptions& options,
                                               ConfigProblems& problems) {
  const nlohmann::json* const load = config_detail::find(document, "/checkpoint/load");
  if (!options.saved_model || load == nullptr || !load->is_string()) return document;
  const auto& path = load->get_ref<const std::string&>();
  if (path.empty() || path == "auto" || is_iteration(path)) return document;
  nlohmann::json& model = document["model"];
  if (model.is_null()) model = nlohmann::json::object();
  if (!model.is_object()) return document;
  const auto has = [&](const std::string& key) {
    return model.contains(key) && !model[key].is_null();
  };
  const auto take = [&](const std::string& folder) {
    const nlohmann::json saved = parse_json(options.saved_model(folder), folder);
    // A null in the document means that no layer has a window. Keys of another model would be
    // refused before the code that reads the weights can say which key differs.
    const auto differs = [&](const char* key) {
      return has(key) && saved.contains(key) && model[key] != saved[key];
    };
    const bool other_model = differs("architecture"), other_layers = differs("num_layers");
    const bool windowless = model.contains("sliding_window") && model["sliding_window"].is_null();
    const bool other_windows =
        other_model || other_layers || windowless || differs("sliding_window");
    for (const auto& [key, value] : saved.items()) {
      // A null in the document means that the embedding has no padding row.
      const bool off = key == "pad_token_id" && model.contains(key);
      const bool of_windows = key == "sliding_window" || key == "window_layers";
      if (key == "moe" && !other_model) {
        take_experts(value, other_layers, model[key]);
      } else if (key == "rope_scaling" && has(key)) {
        take_rope_scaling(value, model[key]);
      } else if (key != "moe" && !has(key) && !off && !(other_windows && of_windows)) {
        model[key] = value;
      }
    }
  };
  try {
    take(path);
  } catch (const RequestError& error) {
    // A resumed run doesn't need these weights; its own weights have the same model.
    const nlohmann::json* const save = config_detail::find(document, "/checkpoint/save");
    if (save != nullptr && save->is_string() && *save != *load) {
      try {
        take(save->get<std::string>());
        return document;
      } catch (const RequestError&) {  // `save` has no weights: report the problem of `load`
      }
    }
    // If the config describes the model itself, the code that reads the weights reports the
    // problem.
    const auto& all = config_detail::fields();
    const bool whole = std::ranges::all_of(all, [&](const auto& field) {
      return !field.required || config_detail::parent(field.path) != "/model" ||
             has(config_detail::leaf(field.path));
    });
    if (whole) return document;
    for (const std::string& problem : error.problems()) problems.add("/checkpoint/load", problem);
    for (const auto& field : all) problems.spoil(field.path);
    return std::nullopt;
  }
  return document;
}

// Checks keys and types of the written config, including the keys that of_one_rank() removes.
void check_types(const nlohmann::json& written, const LoadOptions& options) {
  Config config;
  config.constraints = options.constraints;
  config.parallel.more_axes = options.more_axes;
  ConfigProblems problems;
  config_detail::check_keys(written, problems);
  if (const auto whole = with_saved_model(written, options, problems)) {
    config_detail::read_fields(*whole, config, problems);
  }
  if (!problems.lines().empty()) throw RequestError(problems.lines());
}

// Removes the keys that a layout sets, for a run of one rank with one sample at a time.
nlohmann::json of_one_rank(nlohmann::json document) {
  for (std::string key : layout_keys()) {
    std::replace(key.begin(), key.end(), '.', '/');
    const nlohmann::json::json_pointer at("/" + key);
    if (document.contains(at)) document[at.parent_pointer()].erase(at.back());
  }
  document["batch"]["micro_batch_size"] = 1;
  return document;
}

}  // namespace

const std::vector<std::string>& layout_keys() {
  static const std::vector<std::string> keys{"pipeline.schedule",
                                             "pipeline.schedule_file",
                                             "pipeline.microbatch_group_size_per_vp_stage",
                                             "pipeline.layer_split",
                                             "batch.micro_batch_size",
                                             "batch.gradient_accumulation_steps",
                                             "zero_optimization.stage",
                                             "zero_optimization.reduce_each_micro_batch",
                                             "activation_checkpointing.granularity"};
  return keys;
}

bool config_detail::fill_in(const nlohmann::json& document, const LoadOptions& options,
                            const std::string& name, Config& config, Problems& problems) {
  config.constraints = options.constraints;
  config.parallel.more_axes = options.more_axes;
  check_keys(document, problems);
  const auto whole = with_saved_model(document, options, problems);
  if (!whole) return false;
  resolve(config, read_fields(*whole, config, problems), options, name, problems);
  return true;
}

LoadedConfig parse_config(std::string_view text, const std::vector<std::string>& overrides,
                          const LoadOptions& options, const std::string& name) {
  using namespace config_detail;
  nlohmann::json document;
  try {
    document = parse_json(text, name, JsonComments::allowed);
  } catch (const RequestError& error) {
    throw RequestError(fmt::format("config: {}", error.what()));
  }
  if (!document.is_object()) {
    throw RequestError(fmt::format("config: {}: the document must be an object of sections", name));
  }
  if (!options.constraints) throw Error("parse_config: LoadOptions::constraints is missing");
  if (document.contains("extends")) {
    throw RequestError("config: /extends: only a config that is read from a file can have it");
  }
  if (const auto schema = document.find("$schema"); schema != document.end()) {
    if (!schema->is_string()) {
      throw RequestError("config: /$schema: needs the address of a schema, for editors");
    }
    document.erase(schema);
  }
  nlohmann::json written = override_document(document, overrides, options, name);

  LoadedConfig loaded;
  const auto* micro = find(written, "/batch/micro_batch_size");
  loaded.micro_batch_is_auto = micro != nullptr && *micro == "auto";
  LoadOptions situation = options;
  loaded.parallel_is_auto = has_parallel_word(document);
  if (loaded.parallel_is_auto) {
    written.erase("parallel");
    check_types(written, options);
    document = of_one_rank(written);
    situation.local_ranks = options.local_ranks ? options.local_ranks : options.ranks;
    situation.ranks.reset();
  }
  Problems problems;
  if (fill_in(document, situation, name, loaded.config, problems)) {
    validate(loaded.config, problems);
  }
  if (!problems.lines().empty()) throw RequestError(problems.lines());
  loaded.written = written_text(written);
  loaded.filled_in = config_to_json(loaded.config, loaded.written);
  const auto* device = find(document, "/runtime/device");
  loaded.device_is_auto = device == nullptr || *device == "auto";
  const auto* accumulation = find(document, "/batch/gradient_accumulation_steps");
  loaded.accumulation_is_given = accumulation != nullptr && !accumulation->is_null();
  return loaded;
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         const LoadOptions& options) {
  return parse_config(read_config(path), overrides, options, path);
}

bool layout_is_auto(const std::string& text, const std::vector<std::string>& overrides) {
  try {
    nlohmann::json document = parse_json(text, "config", JsonComments::allowed);
    config_detail::apply_overrides(document, overrides);
    return config_detail::has_parallel_word(document);
  } catch (const RequestError&) {
    return false;
  }
}

}  // namespace trident
