// Checks that a config has only known keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files/json.h"
#include "base/nearest.h"
#include "settings/fields.h"
#include "settings/peer_keys.h"

namespace trident::config_detail {
namespace {

using nlohmann::json;

// Advice for an unknown key. If another trainer has the key, the advice is its place here. Else it
// is the key with the nearest name, with a slight preference for keys of its own section. If no
// name is near, it lists the keys of the section.
std::string suggestion(const std::string& section, const std::string& key) {
  if (const PeerKey* const peers = find_peer_key(leaf(section), key)) return directions(*peers);
  std::string best, best_name;
  std::size_t best_distance = SIZE_MAX;
  const auto consider = [&](const std::string& name, const std::string& shown_name,
                            std::size_t handicap) {
    const std::size_t distance = edit_distance(key, name) + handicap;
    if (distance < best_distance) {
      best_distance = distance;
      best = shown_name;
      best_name = name;
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
  if (is_near(key, best_name)) return fmt::format("did you mean {}?", best);
  std::vector<std::string> own;
  const auto list = [&](const std::string& path) {
    if (!path.empty() && parent(path) == section) own.push_back(leaf(path));
  };
  for (const Section& other : sections()) list(other.path);
  for (const Field& field : fields()) list(field.path);
  if (own.empty()) return "leave it out";
  return fmt::format("there are {}", fmt::join(own, ", "));
}

// DeepSpeed's keys of zero_optimization that this config lacks.
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

// Whether an unknown section holds keys that another trainer has in a section of this name.
bool is_of_peers(const json& object, const std::string& section) {
  for (const auto& [key, value] : object.items()) {
    if (find_peer_key(section, key) != nullptr) return true;
    if (value.is_object() && is_of_peers(value, key)) return true;
  }
  return false;
}

// Adds a problem with advice for each key of another trainer's section.
void add_peers_section(const json& object, const std::string& section, Problems& problems) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = json_pointer_append(section, key);
    if (value.is_object() && is_of_peers(value, key)) {
      add_peers_section(value, path, problems);
    } else {
      problems.add(path, "unknown key; " + suggestion(section, key));
    }
  }
}

void add_unknown(const std::string& section, const std::string& key, const json& value,
                 Problems& problems) {
  const std::string path = json_pointer_append(section, key);
  if (is_unsupported(section, key)) {
    problems.add(path, "this setting of DeepSpeed is not supported; leave it out");
  } else if (value.is_object() && is_of_peers(value, key)) {
    add_peers_section(value, path, problems);
  } else {
    problems.add(path, "unknown key; " + suggestion(section, key));
  }
}

// Reports unknown keys, and sections that aren't objects.
void check_keys(const json& object, const std::string& section, Problems& problems) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = json_pointer_append(section, key);
    const auto names_it = [&](const auto& entry) { return entry.path == path; };
    if (std::any_of(fields().begin(), fields().end(), names_it)) continue;
    const auto known = std::find_if(sections().begin(), sections().end(), names_it);
    if (known == sections().end()) {
      add_unknown(section, key, value, problems);
    } else if (!value.is_object()) {
      problems.add(path, fmt::format("{} is not an object of keys{}", shown(value),
                                     known->word.empty() ? "" : ", nor \"" + known->word + "\""));
    } else {
      check_keys(value, path, problems);
    }
  }
}

}  // namespace

void check_keys(const json& document, Problems& problems) {
  check_keys(document, "", problems);
}

bool has_parallel_word(const json& document) {
  const json* const value = find(document, "/parallel");
  return value != nullptr &&
         std::any_of(sections().begin(), sections().end(), [&](const Section& one) {
           return one.path == "/parallel" && *value == one.word;
         });
}

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

}  // namespace trident::config_detail
