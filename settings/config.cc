#include "settings/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "settings/fields.h"

namespace trident {
namespace {

template <class Row>
const Row& row_of(const ConfigConstraints* constraints, std::vector<Row> ConfigConstraints::*rows,
                  const char* key, const std::string& name) {
  if (constraints == nullptr)
    throw Error("this config was not loaded, so its names have no constraints to look up");
  const Row* row = find_row(constraints->*rows, name);
  if (row == nullptr) throw Error(fmt::format("config: {}: there is no \"{}\"", key, name));
  return *row;
}

}  // namespace

const ScheduleConstraints& schedule_constraints(const Config& config) {
  return row_of(config.constraints.get(), &ConfigConstraints::schedules, "/pipeline/schedule",
                config.pipeline.schedule);
}

const ModelConstraints& model_constraints(const Config& config) {
  return row_of(config.constraints.get(), &ConfigConstraints::models, "/model/architecture",
                config.model.architecture);
}

const OptimizerConstraints& optimizer_constraints(const Config& config) {
  return row_of(config.constraints.get(), &ConfigConstraints::optimizers, "/optimizer/type",
                config.optimizer.type);
}

const TransportConstraints& transport_constraints(const Config& config) {
  return row_of(config.constraints.get(), &ConfigConstraints::transports, "/runtime/transport",
                config.runtime.transport);
}

namespace config_detail {

std::vector<std::string> ordered_axes(const ParallelConfig& parallel) {
  const std::vector<MeshAxis> axes = parallel.axes();
  const auto order = axis_order(axes, ParallelConfig{}.rank_order);
  std::vector<std::string> names;
  for (const std::size_t i : order.value()) {
    if (!axes[i].key.empty()) names.push_back(axes[i].name);
  }
  return names;
}

bool axes_sound(const ParallelConfig& parallel, const Problems& problems) {
  const std::vector<MeshAxis> axes = parallel.axes();
  return std::all_of(axes.begin(), axes.end(), [&](const MeshAxis& axis) {
    return axis.key.empty() || problems.sound("/parallel/" + axis.key);
  });
}

std::optional<std::array<double, 3>> parse_split(const std::string& split) {
  std::array<double, 3> parts{};
  if (split.empty()) return std::array<double, 3>{1.0, 0.0, 0.0};
  const char* at = split.data();
  const char* const end = at + split.size();
  for (double& part : parts) {
    const auto [stop, code] = std::from_chars(at, end, part, std::chars_format::fixed);
    if (code != std::errc{} || !(part >= 0.0 && part < 1e15)) return std::nullopt;
    at = stop;
    if (at == end) break;
    if (*at != ',' || &part == &parts.back()) return std::nullopt;
    ++at;
  }
  const double sum = parts[0] + parts[1] + parts[2];
  if (!(parts[0] > 0.0)) return std::nullopt;
  for (double& part : parts) part /= sum;
  return parts;
}

}  // namespace config_detail

std::array<double, 3> DataConfig::split_fractions() const {
  const auto fractions = config_detail::parse_split(split);
  if (!fractions) throw RequestError("config: /data/split: \"" + split + "\" is malformed");
  return *fractions;
}

std::vector<MeshAxis> ParallelConfig::axes() const {
  std::vector<MeshAxis> axes{{.name = "dp",
                              .title = "data",
                              .key = "data_parallel_size",
                              .size = data_parallel_size,
                              .groups = {Group::batch, Group::shard, Group::loss}},
                             {.name = "tp",
                              .title = "tensor",
                              .key = "tensor_model_parallel_size",
                              .size = tensor_model_parallel_size,
                              .groups = {Group::tensor}},
                             {.name = "pp",
                              .title = "pipeline",
                              .key = "pipeline_model_parallel_size",
                              .size = pipeline_model_parallel_size,
                              .groups = {Group::pipeline}}};
  if (context_parallel_size > 1) {
    MeshAxis& axis =
        axes.emplace_back(MeshAxis{.name = std::string(context_axis),
                                   .title = "context",
                                   .key = "context_parallel_size",
                                   .size = context_parallel_size,
                                   .groups = {Group::context, Group::shard, Group::loss}});
    if (cp_comm_type == both_exchanges && hierarchical_context_parallel_sizes.size() == 2) {
      axis.parts = {{Group::context_heads, hierarchical_context_parallel_sizes[0]},
                    {Group::context_ring, hierarchical_context_parallel_sizes[1]}};
    }
  }
  axes.insert(axes.end(), more_axes.begin(), more_axes.end());
  if (expert_tensor_parallel_size == 0) return axes;
  const auto of_experts =
      expert_axes(axes, expert_model_parallel_size, expert_tensor_parallel_size);
  axes.insert(axes.end(), of_experts.begin(), of_experts.end());
  return axes;
}

std::vector<std::int64_t> MoeConfig::layers() const {
  std::vector<std::int64_t> layers;
  for (std::size_t i = 0; i < layer_freq.size(); ++i) {
    if (has_experts() && layer_freq[i] != 0) layers.push_back(static_cast<std::int64_t>(i));
  }
  return layers;
}

std::int64_t Config::world_size() const {
  return trident::world_size(parallel.axes());
}

std::int64_t Config::num_microbatches() const {
  return batch.gradient_accumulation_steps;
}

std::int64_t Config::stages() const {
  return parallel.pipeline_model_parallel_size * parallel.virtual_pipeline_model_parallel_size;
}

std::int64_t Config::padded_vocab_size() const {
  const std::int64_t unit =
      model.make_vocab_size_divisible_by * parallel.tensor_model_parallel_size;
  return (model.vocab_size + unit - 1) / unit * unit;
}

std::int64_t Config::head_dim() const {
  return model.head_dim;
}

bool is_iteration(const std::string& load) {
  const bool digits = load.find_first_not_of("0123456789") == std::string::npos;
  return !load.empty() && load.size() <= 18 && digits;
}

}  // namespace trident
