#include "run/startup/measured_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "engine/setup/registry.h"
#include "planner/plan/fit.h"
#include "planner/plan/planned_rank.h"

namespace trident {
namespace {

// The sizes of a model that can be halved.
struct Sizes {
  std::int64_t layers, hidden, ffn, heads, groups, head_dim, vocabulary, sequence;
  std::int64_t expert_ffn, shared_ffn;  // 0: none
  std::int64_t latent, query_latent;    // of attention, whose heads then have sizes of their own
  std::int64_t further;                 // layers that predict further tokens

  static Sizes of(const ModelConfig& model, std::int64_t sequence) {
    return {std::min<std::int64_t>(2, model.num_layers),
            model.hidden_size,
            model.ffn_hidden_size,
            model.num_attention_heads,
            model.num_query_groups,
            model.head_dim,
            model.vocab_size,
            sequence,
            model.moe.ffn_hidden_size,
            model.moe.shared_expert_intermediate_size,
            model.kv_lora_rank,
            model.q_lora_rank,
            std::min<std::int64_t>(1, model.mtp_num_layers)};
  }

  // False where no size is left to halve. `tensor`: the number of ranks that must divide what is
  // sharded.
  bool halve(std::int64_t tensor) {
    // First the sizes that matter least to the layers' kernels, then the layers' width. The head
    // dimension stays as long as possible.
    if (halve(vocabulary, std::max<std::int64_t>(8192, hidden), tensor)) return true;
    if (halve(sequence, 256, 1)) return true;
    if (halve(layers, 1, 1)) return true;
    const bool fewer_heads = heads % 2 == 0 && heads / 2 % tensor == 0 && heads > groups;
    const bool fewer_groups = groups % 2 == 0 && groups / 2 % tensor == 0;
    const auto whole = [&](std::int64_t size) { return size % 2 == 0 && size / 2 % tensor == 0; };
    if (hidden % 2 != 0 || latent % 2 != 0 || query_latent % 2 != 0 || !whole(ffn) ||
        !whole(expert_ffn) || !whole(shared_ffn)) {
      return halve(vocabulary, 512, tensor) || halve(sequence, 16, 1);
    }
    if (fewer_heads || fewer_groups) {
      heads /= 2;
      if (groups > heads || heads % groups != 0) groups = std::max<std::int64_t>(1, groups / 2);
      if (heads % groups != 0 || groups % tensor != 0) groups = heads;
    } else if (latent == 0 && head_dim % 4 == 0 && head_dim > 8) {
      head_dim /= 2;
    } else {
      return halve(vocabulary, 512, tensor) || halve(sequence, 16, 1);
    }
    hidden /= 2;
    ffn /= 2;
    expert_ffn /= 2;
    shared_ffn /= 2;
    latent /= 2;
    query_latent /= 2;
    return true;
  }

  std::vector<std::string> set() const {
    std::vector<std::string> keys{fmt::format("model.num_layers={}", layers),
                                  fmt::format("model.hidden_size={}", hidden),
                                  fmt::format("model.ffn_hidden_size={}", ffn),
                                  fmt::format("model.num_attention_heads={}", heads),
                                  fmt::format("model.num_query_groups={}", groups),
                                  fmt::format("model.vocab_size={}", vocabulary),
                                  fmt::format("data.sequence_length={}", sequence)};
    if (further > 0) keys.push_back(fmt::format("model.mtp_num_layers={}", further));
    if (latent > 0) {
      keys.push_back(fmt::format("model.kv_lora_rank={}", latent));
      keys.push_back(fmt::format("model.q_lora_rank={}", query_latent));
    } else {
      keys.push_back(fmt::format("model.head_dim={}", head_dim));
    }
    return keys;
  }

 private:
  // Halves to a multiple of `divisor`; false where that is below `least`.
  static bool halve(std::int64_t& size, std::int64_t least, std::int64_t divisor) {
    const std::int64_t half = size / 2 / divisor * divisor;
    if (half < least) return false;
    size = half;
    return true;
  }
};

class ModelsToMeasure {
 public:
  ModelsToMeasure(const LoadedConfig& base, const LoadOptions& load, const JobSize& job,
                  const MeasureBudget& budget)
      : base_(base), load_(load), job_(job), budget_(budget) {}

  std::vector<Config> run() {
    std::vector<Config> models;
    for (std::int64_t ranks = 1; ranks <= job_.ranks_per_node; ++ranks) {
      if (job_.ranks_per_node % ranks != 0) continue;
      const auto one = model_of(ranks, 1);
      if (!one) continue;
      models.push_back(*one);
      constexpr std::int64_t enough_tokens = 1024;
      const std::int64_t samples = enough_tokens / one->data.sequence_length;
      if (samples <= 1) continue;
      if (auto some = model_of(ranks, samples)) models.push_back(std::move(*some));
    }
    if (models.empty()) throw RequestError(last_);
    return models;
  }

 private:
  // The largest model within the budget.
  std::optional<Config> model_of(std::int64_t tensor, std::int64_t samples) {
    for (Sizes sizes = Sizes::of(base_.config.model, base_.config.data.sequence_length);;) {
      if (auto model = parsed(sizes, tensor, samples); model && is_small(*model, tensor))
        return model;
      if (!sizes.halve(tensor)) return std::nullopt;
    }
  }

  std::optional<Config> parsed(const Sizes& sizes, std::int64_t tensor, std::int64_t samples) {
    std::vector<std::string> set = sizes.set();
    if (const auto window = base_.config.model.sliding_window) {
      set.push_back(fmt::format("model.sliding_window={}", *window));
      set.push_back(window_layers(sizes.layers));
    }
    if (const MoeConfig& moe = base_.config.model.moe; moe.has_experts()) {
      set.push_back(fmt::format("model.moe.ffn_hidden_size={}", sizes.expert_ffn));
      set.push_back(fmt::format("model.moe.shared_expert_intermediate_size={}", sizes.shared_ffn));
      set.push_back(expert_layers(moe, sizes.layers));
    }
    for (const MeshAxis& axis : ParallelConfig{}.axes()) {
      if (axis.name == "tp") set.push_back(fmt::format("parallel.{}={}", axis.key, tensor));
    }
    for (const std::string& one :
         {fmt::format("batch.micro_batch_size={}", samples),
          fmt::format("batch.global_batch_size={}", samples),
          std::string("batch.rampup_batch_size=null"), std::string("zero_optimization.stage=0"),
          std::string("activation_checkpointing.granularity=none")}) {
      set.push_back(one);
    }
    for (const std::string& key : layout_keys()) {
      const bool given = std::any_of(set.begin(), set.end(), [&](const std::string& one) {
        return one.starts_with(key + "=");
      });
      if (!given) set.push_back(key + "=null");
    }
    try {
      return parse_config(base_.written, set, load_).config;
    } catch (const RequestError& error) {
      last_ = error.what();  // for example, heads that don't divide
      return std::nullopt;
    }
  }

  // The window of the layers that are left; of the first one if none of them had it.
  std::string window_layers(std::int64_t layers) const {
    std::vector<std::int64_t> left;
    for (const std::int64_t layer : base_.config.model.window_layers) {
      if (layer < layers) left.push_back(layer);
    }
    if (left.empty()) left.push_back(0);
    return fmt::format("model.window_layers=[{}]", fmt::join(left, ","));
  }

  // The last of the layers that are left has experts, as in a model whose first layers have none.
  static std::string expert_layers(const MoeConfig& moe, std::int64_t layers) {
    const bool all = std::ssize(moe.layers()) == std::ssize(moe.layer_freq);
    std::vector<int> freq(static_cast<std::size_t>(layers), all ? 1 : 0);
    freq.back() = 1;
    return fmt::format("model.moe.layer_freq=[{}]", fmt::join(freq, ","));
  }

  bool is_small(const Config& model, std::int64_t tensor) {
    const Architecture& architecture = *architecture_of(model);
    const auto peak = planned_peak(model, architecture);
    const std::int64_t together =
        model.runtime.device == "cuda"
            ? 1
            : std::max<std::int64_t>(1, load_.cores / model.runtime.threads_per_rank);
    const double flops = flops_per_step(model, architecture) / static_cast<double>(tensor);
    const bool fits =
        peak && *peak <= job_.memory && (*peak - library_bytes(model)) * together <= budget_.bytes;
    if (!fits) {
      last_ = fmt::format(
          "config: /parallel: \"auto\" measures a small model like this one, which doesn't fit {} "
          "a rank; give runtime.machine",
          bytes_text(std::min(job_.memory, budget_.bytes / together)));
    }
    return fits && flops <= budget_.flops;
  }

  const LoadedConfig& base_;
  const LoadOptions& load_;
  const JobSize& job_;
  const MeasureBudget& budget_;
  std::string last_;  // why the last rejected model can't be measured
};

}  // namespace

std::vector<Config> models_to_measure(const LoadedConfig& base, const LoadOptions& load,
                                      const JobSize& job, const MeasureBudget& budget) {
  return ModelsToMeasure(base, load, job, budget).run();
}

}  // namespace trident
