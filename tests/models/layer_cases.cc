#include "tests/models/layer_cases.h"

#include "models/attention.h"
#include "models/block.h"
#include "models/embedding.h"
#include "models/experts.h"
#include "models/head.h"
#include "models/latent_attention.h"
#include "models/mlp.h"
#include "models/norm.h"
#include "parallel/tensor/vocabulary.h"

namespace trident::testing {
namespace {

template <class T>
struct PartActivations final : SavedActivations {
  T part;
};

// A part of a module (norm, linear layer, attention, …), tested as a module of its own.
template <class Part, class PartActivationsType>
class PartModule final : public Module {
 public:
  using Parameters = std::vector<std::shared_ptr<Parameter>>;
  PartModule(Part part, Parameters parameters)
      : part_(std::move(part)), parameters_(std::move(parameters)) {}

  Parameters parameters() const override { return parameters_; }
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x,
                 SavedActivationsPtr& kept) const override {
    auto saved = std::make_unique<PartActivations<PartActivationsType>>();
    Tensor y = part_.forward(context, batch.version, x, saved->part);
    kept = std::move(saved);
    return y;
  }
  Tensor backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                        SavedActivationsPtr& kept) const override {
    auto& saved = static_cast<PartActivations<PartActivationsType>&>(*kept).part;
    if constexpr (std::is_same_v<Part, Norm>) {
      return part_.backward_input(context, batch.version, grad_y, {}, saved);
    } else {
      return part_.backward_input(context, batch.version, grad_y, saved);
    }
  }
  void backward_weight(Context& context, const MicroBatch&,
                       SavedActivationsPtr& kept) const override {
    part_.backward_weight(context, static_cast<PartActivations<PartActivationsType>&>(*kept).part);
    kept.reset();
  }

 private:
  Part part_;
  Parameters parameters_;
};

template <class PartActivationsType, class Part>
std::unique_ptr<Module> module_of_part(Part part) {
  std::vector<std::shared_ptr<Parameter>> parameters;
  part.collect(parameters);
  return std::make_unique<PartModule<Part, PartActivationsType>>(std::move(part), parameters);
}

// The embedding's look-up without the rest.
class Lookup final : public Module {
 public:
  Lookup(const ParallelContext& parallel, Weight table) : table_(table), lookup_(parallel, table) {}
  std::vector<std::shared_ptr<Parameter>> parameters() const override {
    return {table_.parameter()};
  }
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor&,
                 SavedActivationsPtr& saved) const override {
    saved = std::make_unique<PartActivations<Tensor>>();
    return lookup_.forward(context, batch.version, batch.tokens, DType::f32);
  }
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr& saved) const override {
    static_cast<PartActivations<Tensor>&>(*saved).part = grad_y;
    return {};
  }
  void backward_weight(Context& context, const MicroBatch& batch,
                       SavedActivationsPtr& saved) const override {
    lookup_.backward_weight(context, batch.tokens,
                            static_cast<PartActivations<Tensor>&>(*saved).part);
    saved.reset();
  }

 private:
  Weight table_;
  VocabParallelEmbedding lookup_;
};

class Loss final : public Module {
 public:
  explicit Loss(VocabParallelCrossEntropy loss) : loss_(std::move(loss)) {}
  std::vector<std::shared_ptr<Parameter>> parameters() const override { return {}; }
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x,
                 SavedActivationsPtr& kept) const override {
    auto saved = std::make_unique<PartActivations<VocabParallelCrossEntropy::SavedActivations>>();
    Tensor losses = context.empty({x.dim(0)}, DType::f32, Category::activation);
    loss_.forward(context, x, batch.labels, losses, saved->part);
    kept = std::move(saved);
    return losses;
  }
  Tensor backward_input(Context& context, const MicroBatch& batch, const Tensor&,
                        SavedActivationsPtr& kept) const override {
    auto& saved = static_cast<PartActivations<VocabParallelCrossEntropy::SavedActivations>&>(*kept);
    return loss_.backward(context, batch.loss_scale, saved.part);
  }
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr& kept) const override {
    kept.reset();
  }

 private:
  VocabParallelCrossEntropy loss_;
};

TransformerShape gpt2_shape() {
  // The vocabulary of 17 is padded to 24: of 4 ranks the last one holds only padding.
  return {.layers = 2,
          .hidden = 16,
          .heads = 4,
          .groups = 4,
          .ffn = 24,
          .positions = 8,
          .vocabulary = 17,
          .padded_vocabulary = 24,
          .layer_norm = true,
          .qkv_bias = true,
          .output_bias = true,
          .mlp_bias = true,
          .seed = 7};
}

TransformerShape llama_shape() {
  TransformerShape shape = gpt2_shape();
  shape.hidden = 32;
  shape.heads = 8;
  shape.positions = 0;
  shape.layer_norm = shape.qkv_bias = shape.output_bias = shape.mlp_bias = false;
  shape.swiglu = shape.rotary = true;
  return shape;
}

Placement rows_of(const ParallelContext& parallel, const TransformerShape& shape) {
  return parallel.activations({kRows, shape.hidden});
}
Placement logits_of(const ParallelContext& parallel, const TransformerShape& shape) {
  return parallel.sharded({kRows, shape.vocabulary}, 1, shape.padded_vocabulary);
}
Placement tokens_of(const ParallelContext&, const TransformerShape&) {
  return {};
}
Placement losses_of(const ParallelContext&, const TransformerShape&) {
  return Placement::replicated({kRows});
}

LayerCase norm_case(const std::string& name, const TransformerShape& shape) {
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return module_of_part<NormActivations>(
                Norm(parallel, "norm", s.hidden, s.norm_epsilon, s.layer_norm));
          },
          rows_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch&,
             const Values& x) { return reference::norm(x, weights, "norm", s); }};
}

// A layer says where its input and output lie.
LayerCase linear_case(const std::string& name, LinearRole role) {
  const auto layer = [role](const ParallelContext& parallel, const TransformerShape& s) {
    return parallel.linear({.name = "linear",
                            .role = role,
                            .in = s.hidden,
                            .out = {s.ffn},
                            .bias = true,
                            .init_deviation = 1});
  };
  return {name,
          gpt2_shape(),
          [=](const ParallelContext& parallel, const TransformerShape& s) {
            return module_of_part<LinearActivations>(layer(parallel, s));
          },
          [=](const ParallelContext& parallel, const TransformerShape& s) {
            return layer(parallel, s).input(kRows);
          },
          [=](const ParallelContext& parallel, const TransformerShape& s) {
            return layer(parallel, s).output(kRows);
          },
          [](const TransformerShape& s, const Weights& weights, const reference::Batch&,
             const Values& x) {
            return reference::linear(x, weights.at("linear.weight"), &weights.at("linear.bias"),
                                     reference::count(s.hidden));
          }};
}

LayerCase lookup_case() {
  return {"VocabParallelEmbedding",
          gpt2_shape(),
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(
                new Lookup(parallel, Weight(embedding_table(parallel, s, false))));
          },
          tokens_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values&) { return reference::embedding(weights, s, batch); }};
}

LayerCase loss_case(const std::string& name, float label_smoothing) {
  TransformerShape shape = gpt2_shape();
  shape.label_smoothing = label_smoothing;
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new Loss(VocabParallelCrossEntropy(
                parallel, s.vocabulary, s.padded_vocabulary, s.label_smoothing)));
          },
          logits_of,
          losses_of,
          [](const TransformerShape& s, const Weights&, const reference::Batch& batch,
             const Values& x) { return reference::cross_entropy(x, s, batch); },
          true};
}

LayerCase attention_case(const std::string& name, const TransformerShape& shape) {
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new Attention(parallel, s, "attention", s.window_of(0)));
          },
          rows_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values& x) { return reference::attention(x, weights, "attention", s, batch); }};
}

LayerCase latent_case(const std::string& name, const TransformerShape& shape) {
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new LatentAttention(parallel, s, "attention"));
          },
          rows_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values& x) {
            return reference::latent_attention(x, weights, "attention", s, batch);
          }};
}

LayerCase mlp_case(const std::string& name, const TransformerShape& shape) {
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new Mlp(parallel, s, "mlp"));
          },
          rows_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch&,
             const Values& x) { return reference::mlp(x, weights, "mlp", s); }};
}

LayerCase experts_case(const std::string& name, const TransformerShape& shape) {
  return {
      .name = name,
      .shape = shape,
      .make =
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new Experts(parallel, s, "mlp", 0));
          },
      .input = rows_of,
      .output = rows_of,
      .forward = [](const TransformerShape& s, const Weights& weights,
                    const reference::Batch& batch,
                    const Values& x) { return reference::experts(x, weights, "mlp", s, batch); },
      .auxiliary =
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values& x) { return reference::balancing_losses(x, weights, "mlp", s, batch); },
      .has_experts = true};
}

LayerCase block_case(const std::string& name, const TransformerShape& shape) {
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(new Block(
                parallel, s, "block",
                std::make_unique<Attention>(parallel, s, "block.attention", s.window_of(0)),
                std::make_unique<Mlp>(parallel, s, "block.mlp")));
          },
          rows_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values& x) { return reference::block(x, weights, "block", s, batch); }};
}

LayerCase embedding_case() {
  return {"EmbeddingWithPositions",
          gpt2_shape(),
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(
                new Embedding(parallel, s, Weight(embedding_table(parallel, s, false))));
          },
          tokens_of,
          rows_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values&) { return reference::embedding(weights, s, batch); }};
}

LayerCase head_case(const std::string& name, TransformerShape shape,
                    std::int64_t logit_bytes = 64 << 20) {
  shape.label_smoothing = 0.1f;
  shape.logit_bytes = logit_bytes;
  return {name,
          shape,
          [](const ParallelContext& parallel, const TransformerShape& s) {
            return std::unique_ptr<Module>(
                new LanguageModelHead(parallel, s, output_table(parallel, s)));
          },
          rows_of,
          losses_of,
          [](const TransformerShape& s, const Weights& weights, const reference::Batch& batch,
             const Values& x) {
            const Values y = reference::norm(x, weights, "final_norm", s);
            return reference::cross_entropy(reference::linear(y, weights.at("output.weight"),
                                                              nullptr, reference::count(s.hidden)),
                                            s, batch);
          },
          true};
}

// Calls visit(local index, global index) for every element that is no padding.
template <class Visit>
void each_element(const Placement& placement, Visit visit) {
  const Shape& global = placement.global;
  for (const LocalSlice& held : placement.slices()) {
    each_range(held, global.rank() == 1 ? 1 : global.matrix_columns(),
               [&](std::int64_t local, std::int64_t at, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) {
                   visit(static_cast<std::size_t>(local + i), static_cast<std::size_t>(at + i));
                 }
               });
  }
}

}  // namespace

Values part_of(const Values& full, const Placement& placement) {
  Values part(static_cast<std::size_t>(placement.numel()), 0.0);
  each_element(placement, [&](std::size_t i, std::size_t j) { part[i] = full[j]; });
  return part;
}

void place(const Values& part, const Placement& placement, Values& full) {
  full.resize(static_cast<std::size_t>(placement.global.numel()));
  each_element(placement, [&](std::size_t i, std::size_t j) { full[j] = part[i]; });
}

std::vector<LayerCase> layer_cases() {
  TransformerShape grouped = llama_shape();
  grouped.groups = 4;
  TransformerShape biased = grouped;  // Qwen2's queries, keys and values
  biased.qkv_bias = true;
  TransformerShape all_biased = biased;  // Llama with all biases
  all_biased.output_bias = all_biased.mlp_bias = true;
  TransformerShape wide_heads = grouped;  // heads of 6 elements, not 32 / 8
  wide_heads.head_size = 6;
  TransformerShape normed = wide_heads;  // Qwen3
  normed.qk_norm = true;
  TransformerShape normed_together = grouped;  // OLMoE
  normed_together.qk_norm = normed_together.norms_all_heads = true;
  TransformerShape windowed = grouped;  // Mistral
  windowed.sliding_window = 2;
  windowed.window_layers = {0};
  TransformerShape scaled = grouped;
  scaled.rotary_frequencies = yarn_frequencies(
      100, 4, {.factor = 3, .beta_fast = 2, .beta_slow = 0.1, .original = 6, .amplitude = 1.2});
  TransformerShape mixtral = llama_shape();
  mixtral.experts = {
      .router = {.experts = 4, .topk = 2, .normalized = true}, .layers = {0}, .ffn = 4};
  TransformerShape balanced = mixtral;  // as DeepSeek-V3's
  balanced.experts.router.score = RouterScore::sigmoid;
  balanced.experts.router.scaling = 2.5;
  balanced.experts.shared_ffn = 4;
  balanced.experts.balancing_loss = 0.75;
  balanced.experts.z_loss = 0.25;
  TransformerShape limited = mixtral;
  limited.experts.capacity_factor = 0.7;  // three of six tokens
  TransformerShape single = mixtral;
  single.experts.router = {.experts = 4, .topk = 1};
  single.experts.balancing_loss = 0.5;
  TransformerShape micro_batch = balanced;  // Megatron's aux_loss
  micro_batch.experts.balances_micro_batch = true;
  micro_batch.experts.z_loss = 0;
  TransformerShape latent = llama_shape();
  latent.hidden = 16;
  latent.heads = latent.groups = 4;
  latent.latent = {.rank = 6, .plain = 4, .rotary = 2, .value = 3};
  TransformerShape query_latent = latent;  // DeepSeek-V3 with biases and a scaling
  query_latent.latent.query_rank = 5;
  query_latent.latent.score_factor = 1.25f;
  query_latent.qkv_bias = query_latent.output_bias = true;
  return {norm_case("LayerNorm", gpt2_shape()),
          norm_case("RmsNorm", llama_shape()),
          linear_case("ColumnParallelLinear", LinearRole::column),
          linear_case("RowParallelLinear", LinearRole::row),
          linear_case("ReplicatedLinear", LinearRole::replicated),
          lookup_case(),
          loss_case("VocabParallelCrossEntropy", 0),
          loss_case("VocabParallelCrossEntropySmoothed", 0.2f),
          attention_case("AttentionMultiHead", gpt2_shape()),
          attention_case("AttentionRotary", llama_shape()),
          attention_case("AttentionGroupedRotary", grouped),
          attention_case("AttentionRotaryWithQkvBias", biased),
          attention_case("AttentionRotaryWithBiases", all_biased),
          attention_case("AttentionWideHeads", wide_heads),
          attention_case("AttentionWithNorms", normed),
          attention_case("AttentionWithNormsOfAllHeads", normed_together),
          attention_case("AttentionWithWindow", windowed),
          attention_case("AttentionWithScaledPositions", scaled),
          latent_case("AttentionLatent", latent),
          latent_case("AttentionWithALatentOfQueries", query_latent),
          mlp_case("MlpSwigluWithBiases", all_biased),
          mlp_case("MlpGelu", gpt2_shape()),
          mlp_case("MlpSwiglu", llama_shape()),
          experts_case("Experts", mixtral),
          experts_case("ExpertsWithASharedOneAndLosses", balanced),
          experts_case("ExpertsBalancedInAMicroBatch", micro_batch),
          experts_case("ExpertsOneAToken", single),
          experts_case("ExpertsWithACapacity", limited),
          block_case("BlockGpt2", gpt2_shape()),
          block_case("BlockLlama", grouped),
          block_case("BlockQwen3", normed),
          embedding_case(),
          head_case("HeadLayerNorm", gpt2_shape()),
          head_case("HeadRmsNorm", llama_shape()),
          head_case("HeadLayerNormFiveRowsAtATime", gpt2_shape(), 5 * 17 * 4),
          head_case("HeadRmsNormOneRowAtATime", llama_shape(), 1)};
}

}  // namespace trident::testing
