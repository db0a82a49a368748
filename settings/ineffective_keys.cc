#include "settings/ineffective_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/files/json.h"
#include "base/printable.h"
#include "settings/fields.h"
#include "settings/paths.h"

namespace trident {
namespace config_detail {
namespace {

constexpr auto kSequence = "/parallel/sequence_parallel";
constexpr auto kOverlap = "/parallel/tp_comm_overlap";
constexpr auto kGroup = "/pipeline/microbatch_group_size_per_vp_stage";
constexpr auto kGranularity = "/activation_checkpointing/granularity";
constexpr auto kUnits = "/activation_checkpointing/num_layers";

// A tensor group of one rank has no sequence parallelism and no overlap.
void without_tensor_group(Config& config, const Problems& problems) {
  if (!problems.sound(kTensor) || config.parallel.tensor_model_parallel_size != 1) return;
  if (problems.sound(kSequence)) config.parallel.sequence_parallel = false;
  if (problems.sound(kOverlap)) config.parallel.tp_comm_overlap = false;
}

// One rank has complete samples.
void without_context_group(Config& config, const Problems& problems) {
  if (!problems.sound({kContext, kContextExchange, kContextSizes})) return;
  if (config.parallel.context_parallel_size == 1) {
    config.parallel.cp_comm_type = ParallelConfig{}.cp_comm_type;
    config.parallel.hierarchical_context_parallel_sizes.clear();
  }
}

// A single pipeline rank can't interleave its chunks with those of other ranks.
void without_pipeline(Config& config, const Problems& problems) {
  if (!problems.sound({kPipeline, kChunks, kSchedule, kScheduleFile})) return;
  if (config.parallel.pipeline_model_parallel_size != 1 || !config.pipeline.schedule_file.empty()) {
    return;
  }
  const ScheduleConstraints& kind = schedule_constraints(config);
  std::int64_t& chunks = config.parallel.virtual_pipeline_model_parallel_size;
  if (kind.grouped && find_row(config.constraints->schedules, kind.ungrouped) != nullptr) {
    config.pipeline.schedule = kind.ungrouped;
    chunks = 1;
  } else if (kind.chunks == ChunkRule::one) {
    chunks = 1;
  }
}

// Schedules without groups of micro-batches ignore the group's size.
void without_groups(Config& config, const Problems& problems) {
  if (!problems.sound({kGroup, kSchedule, kScheduleFile})) return;
  const bool grouped =
      config.pipeline.schedule_file.empty() && schedule_constraints(config).grouped;
  if (!grouped) config.pipeline.microbatch_group_size_per_vp_stage = 0;
}

// With one stage, a layer split for several stages becomes a single number.
void without_split(Config& config, const Problems& problems) {
  std::vector<std::int64_t>& split = config.pipeline.layer_split;
  if (split.size() < 2 || !problems.sound({kLayerSplit, kPipeline, kChunks, kLayers})) return;
  const std::int64_t layers = config.model.num_layers;
  const bool whole = std::accumulate(split.begin(), split.end(), std::int64_t{0}) == layers;
  if (config.stages() == 1 && whole) split = {layers};
}

// Without full recomputation, the number of layers of a recomputed unit has no effect.
void without_recomputation(Config& config, const Problems& problems) {
  if (!problems.sound({kGranularity, kUnits})) return;
  ActivationCheckpointingConfig& asked = config.activation_checkpointing;
  if (asked.granularity != "full") asked.num_layers = ActivationCheckpointingConfig{}.num_layers;
}

std::string why(const std::string& path, const ActivationCheckpointingConfig& checkpointing,
                const PipelineConfig& pipeline) {
  if (path == kSequence || path == kOverlap) return "with tensor_model_parallel_size 1";
  if (path == kContextExchange || path == kContextSizes) return "with context_parallel_size 1";
  if (path == kUnits) {
    return fmt::format("with granularity \"{}\"", checkpointing.granularity);
  }
  if (path != kGroup) return "with pipeline_model_parallel_size 1";
  if (!pipeline.schedule_file.empty()) return "with schedule_file";
  return fmt::format("in schedule \"{}\"", pipeline.schedule);
}

}  // namespace

void switch_off_ineffective_keys(Config& config, const Problems& problems) {
  without_tensor_group(config, problems);
  without_context_group(config, problems);
  without_pipeline(config, problems);
  without_groups(config, problems);
  without_split(config, problems);
  without_recomputation(config, problems);
}

}  // namespace config_detail

std::vector<std::string> ineffective_key_notes(const Config& config, const std::string& written) {
  using namespace config_detail;
  if (written.empty()) return {};
  const nlohmann::json document = parse_json(written, "config.json");
  std::vector<std::string> notes;
  for (const char* path : {kSequence, kOverlap, kContextExchange, kContextSizes, kSchedule, kChunks,
                           kGroup, kLayerSplit, kUnits}) {
    const nlohmann::json* const asked = find(document, path);
    const auto field = std::ranges::find(fields(), path, &Field::path);
    const nlohmann::json taken = value_of(*field, config);
    // Loading turns "even" and "auto" into lists.
    const bool word = field->path == kLayerSplit && asked != nullptr && asked->is_string();
    if (asked == nullptr || asked->is_null() || word || *asked == taken) continue;
    notes.push_back(printable(
        fmt::format("config: {}: {} has no effect {} and is {}", path, shown(*asked),
                    why(path, config.activation_checkpointing, config.pipeline),
                    taken.is_null() ? "left out" : fmt::format("taken as {}", shown(taken))),
        400));
  }
  return notes;
}

std::vector<std::string> ineffective_key_notes(const LoadedConfig& loaded) {
  if (loaded.parallel_is_auto) return {};
  return ineffective_key_notes(loaded.config, loaded.written);
}

}  // namespace trident
