#include "models/architecture.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_set>

#include "models/attention.h"
#include "models/block.h"
#include "models/embedding.h"
#include "models/experts.h"
#include "models/head.h"
#include "models/latent_attention.h"
#include "models/layer_name.h"
#include "models/mlp.h"
#include "models/router_statistics.h"

namespace trident {

std::unique_ptr<Module> Architecture::embedding(const ParallelContext& parallel,
                                                const TransformerShape& shape, Weight table) const {
  return std::make_unique<Embedding>(parallel, shape, std::move(table));
}

std::unique_ptr<Module> Architecture::layer(const ParallelContext& parallel,
                                            const TransformerShape& shape, int index) const {
  const std::string name = layer_name(index);
  return std::make_unique<Block>(parallel, shape, name,
                                 mixer(parallel, shape, index, name + ".attention"),
                                 feed_forward(parallel, shape, index, name + ".mlp"));
}

std::unique_ptr<Module> Architecture::mixer(const ParallelContext& parallel,
                                            const TransformerShape& shape, int index,
                                            const std::string& name) const {
  if (shape.latent.rank > 0) return std::make_unique<LatentAttention>(parallel, shape, name);
  return std::make_unique<Attention>(parallel, shape, name, shape.window_of(index));
}

std::unique_ptr<Module> Architecture::feed_forward(const ParallelContext& parallel,
                                                   const TransformerShape& shape, int index,
                                                   const std::string& name) const {
  if (shape.experts.has(index)) return std::make_unique<Experts>(parallel, shape, name, index);
  return std::make_unique<Mlp>(parallel, shape, name);
}

std::unique_ptr<Module> Architecture::head(const ParallelContext& parallel,
                                           const TransformerShape& shape, Weight table) const {
  return std::make_unique<LanguageModelHead>(parallel, shape, std::move(table));
}

std::vector<Statistic> Architecture::statistics(const TransformerShape& shape) const {
  std::vector<Statistic> list = router_statistics(shape.experts);
  for (Statistic& one : MultiTokenLayer::statistics(shape)) list.push_back(std::move(one));
  return list;
}

void Architecture::derive_statistics(const TransformerShape& shape, double tokens,
                                     StepStatistics& all) const {
  derive_router_statistics(shape.experts, tokens, all);
}

ArchitectureSet built_in_architectures() {
  return {{"deepseek_v3", make_deepseek_v3()},
          {"gpt2", make_gpt2()},
          {"gpt_oss", make_gpt_oss()},
          {"llama", make_llama()},
          {"mistral", make_mistral()},
          {"mixtral", make_mixtral()},
          {"olmoe", make_olmoe()},
          {"qwen2", make_qwen2()},
          {"qwen2_moe", make_qwen2_moe()},
          {"qwen3", make_qwen3()},
          {"qwen3_moe", make_qwen3_moe()}};
}

std::vector<std::shared_ptr<Parameter>> with_buffers(const Module& module) {
  auto list = module.parameters();
  for (auto& buffer : module.buffers()) list.push_back(std::move(buffer));
  return list;
}

ParameterGroup buffers_of(const std::vector<Chunk>& chunks) {
  ParameterGroup list;
  for (const Chunk& chunk : chunks) {
    for (const auto& module : chunk.modules) {
      for (auto& buffer : module->buffers()) list.push_back(std::move(buffer));
    }
  }
  return list;
}

std::vector<std::shared_ptr<Parameter>> unique_parameters(const std::vector<Chunk>& chunks) {
  std::vector<std::shared_ptr<Parameter>> list;
  std::unordered_set<const Parameter*> seen;
  for (const Chunk& chunk : chunks) {
    for (const auto& module : chunk.modules) {
      for (auto& parameter : with_buffers(*module)) {
        if (seen.insert(parameter.get()).second) list.push_back(std::move(parameter));
      }
    }
  }
  return list;
}

std::vector<ParameterGroup> backward_groups(const std::vector<Chunk>& chunks) {
  std::vector<ParameterGroup> groups;
  std::set<const Parameter*> seen;
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    for (auto module = chunk->modules.rbegin(); module != chunk->modules.rend(); ++module) {
      const ParameterGroup early = (*module)->forward_gradients();
      ParameterGroup late = (*module)->parameters();
      std::reverse(late.begin(), late.end());
      std::erase_if(late, [&](const auto& parameter) {
        return std::find(early.begin(), early.end(), parameter) != early.end();
      });
      for (const ParameterGroup& group : {late, early}) {
        auto& fresh = groups.emplace_back();
        for (const auto& parameter : group) {
          if (seen.insert(parameter.get()).second) fresh.push_back(parameter);
        }
        if (fresh.empty()) groups.pop_back();
      }
    }
  }
  return groups;
}

namespace {

std::unique_ptr<Module> multi_token_head(const Architecture& architecture,
                                         const TransformerShape& shape,
                                         const ParallelContext& parallel, const Weight& output,
                                         const std::shared_ptr<Parameter>& embedding) {
  std::vector<std::unique_ptr<Module>> blocks;
  for (std::int64_t i = 0; i < shape.mtp_layers; ++i) {
    blocks.push_back(architecture.layer(parallel, shape, static_cast<int>(shape.layers + i)));
  }
  return std::make_unique<LanguageModelHead>(parallel, shape, output, Weight(embedding),
                                             std::move(blocks));
}

}  // namespace

std::vector<Chunk> build_chunks(const Architecture& architecture, const TransformerShape& shape,
                                const ParallelContext& parallel,
                                const std::vector<std::int64_t>& layer_split,
                                const std::vector<int>& stages) {
  const int last = static_cast<int>(layer_split.size()) - 1;
  std::shared_ptr<Parameter> table;  // the embedding's, if it is in these chunks
  std::vector<Chunk> chunks;
  for (const int stage : stages) {
    Chunk chunk{stage,
                static_cast<int>(std::accumulate(layer_split.begin(), layer_split.begin() + stage,
                                                 std::int64_t{0})),
                {}};
    if (stage == 0) {
      table = embedding_table(parallel, shape, false);
      chunk.modules.push_back(architecture.embedding(parallel, shape, Weight(table)));
    }
    for (int i = 0; i < layer_split[static_cast<std::size_t>(stage)]; ++i) {
      chunk.modules.push_back(architecture.layer(parallel, shape, chunk.first_layer + i));
    }
    if (stage == last) {
      if (shape.embeds_on_last_stage() && !table) table = embedding_table(parallel, shape, true);
      const Weight output = shape.tied ? Weight(table) : output_table(parallel, shape);
      chunk.modules.push_back(shape.mtp_layers > 0
                                  ? multi_token_head(architecture, shape, parallel, output, table)
                                  : architecture.head(parallel, shape, output));
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace trident
