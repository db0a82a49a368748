// Rows of the field table: the model, its layout over the ranks, and the batch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "settings/field_rows.h"
#include "settings/rope_types.h"

namespace trident::config_detail {
namespace {

// "BEFORE a and b AFTER" for the models that fit; "" where none does.
template <class Fits>
Text::Make of_models(const char* before, const Fits& fits, const char* after) {
  return [=](const ConfigConstraints& constraints) {
    const auto names = names_where(constraints.models, fits);
    return names.empty() ? std::string() : before + list_and(names) + after;
  };
}

template <class Fits>
Text with_models(const char* text, const char* before, const Fits& fits, const char* after) {
  return [=, names = of_models(before, fits, after)](const ConfigConstraints& constraints) {
    return text + names(constraints) + ".";
  };
}

bool is_rotary(const ModelConstraints& model) {
  return model.positions == Positions::rotary;
}
bool is_learned(const ModelConstraints& model) {
  return model.positions == Positions::learned;
}
bool has_free_width(const ModelConstraints& model) {
  return !model.heads_divide_width;
}
bool has_window(const ModelConstraints& model) {
  return model.window != WindowRule::none;
}

std::vector<Choice> rope_type_names() {
  std::vector<Choice> names;
  for (const RopeType& type : rope_types) names.push_back({std::string(type.name)});
  return names;
}

}  // namespace

std::vector<Field> model_fields() {
  const auto member = [](auto m) { return in(&Config::model, m); };
  const auto rope = []<class T>(T RopeScalingConfig::*m) {
    return Member<T>([=](Config& config) -> T& { return config.model.rope_scaling.*m; });
  };
  using M = ModelConfig;
  return {
      {.path = "/model/architecture",
       .member = member(&M::architecture),
       .doc = described("Which model: ", &ConfigConstraints::models, "; ", "; ",
                        ". A program that links the library can add its own."),
       .kinds = [](const ConfigConstraints& constraints) { return names_of(constraints.models); }},
      {.path = "/model/num_layers",
       .member = member(&M::num_layers),
       .doc = "Transformer layers.",
       .range = from(1, 1e5),
       .required = true},
      {.path = "/model/hidden_size",
       .member = member(&M::hidden_size),
       .doc =
           with_models("Width of the residual stream; a multiple of num_attention_heads, but not "
                       "where head_dim is given",
                       " for ", has_free_width, ""),
       .range = from(1, 1e7),
       .required = true},
      {.path = "/model/num_attention_heads",
       .member = member(&M::num_attention_heads),
       .doc = with_models("Attention heads", "; ", is_rotary,
                          "'s rotary positions need an even head_dim"),
       .range = from(1, 1e6),
       .required = true},
      {.path = "/model/num_query_groups",
       .member = member(&M::num_query_groups),
       .doc = with_models(
           "Key and value heads, each shared by num_attention_heads / num_query_groups query heads",
           " (", &ModelConstraints::grouped_queries, ")"),
       .range = from(1, 1e6),
       .derived = "num_attention_heads"},
      {.path = "/model/head_dim",
       .member = member(&M::head_dim),
       .doc = with_models("Elements of a head; an even number with rotary positions",
                          "; may be given for ", &ModelConstraints::free_head_dim, ""),
       .range = from(1, 65536),
       .derived =
           [](const ConfigConstraints& constraints) {
             return "hidden_size / num_attention_heads" +
                    of_models("; qk_pos_emb_head_dim for ", &ModelConstraints::latent_attention,
                              "")(constraints);
           }},
      {.path = "/model/ffn_hidden_size",
       .member = member(&M::ffn_hidden_size),
       .doc = "Inner width of the MLP.",
       .range = from(1, 1e8),
       .derived =
           [](const ConfigConstraints& constraints) {
             return "4 · hidden_size" + of_models("; must be given for ",
                                                  &ModelConstraints::gated_mlp, "")(constraints);
           }},
      {.path = "/model/max_position_embeddings",
       .member = member(&M::max_position_embeddings),
       .doc = with_models("Longest sequence that the model takes", "; the rows of ", is_learned,
                          "'s position table"),
       .unit = "tokens",
       .range = from(1, 1e8),
       .derived = "data.sequence_length"},
      {.path = "/model/vocab_size",
       .member = member(&M::vocab_size),
       .doc = "Token ids that the model knows, padding not counted.",
       .range = from(1, 1e9),
       .derived = "256 for text files; must be given for .bin/.idx pairs of tokens and for "
                  "tokenizer \"file\" where checkpoint.load doesn't have it"},
      {.path = "/model/pad_token_id",
       .member = member(&M::pad_token_id),
       .doc = with_models("The padding token. As in transformers, its row of the input embedding "
                          "starts at 0 and gets no gradient where it is looked up; weight decay "
                          "acts on it, and the output layer's gradient where embeddings are tied",
                          " (", &ModelConstraints::padding_row, ")"),
       .range = from(0, 1e9),
       .derived = "that of the weights in checkpoint.load, else none"},
      {.path = "/model/make_vocab_size_divisible_by",
       .member = member(&M::make_vocab_size_divisible_by),
       .doc = "The vocabulary is padded to a multiple of this times tensor_model_parallel_size. "
              "The padding changes no loss, gradient or exported weight.",
       .range = from(1, 1e6)},
      {.path = "/model/tie_word_embeddings",
       .member = member(&M::tie_word_embeddings),
       .doc = "The output layer uses the word embeddings' weight.",
       .derived =
           [](const ConfigConstraints& constraints) {
             return of_models(
                        "false for ", [](const ModelConstraints& model) { return !model.tied; },
                        ", else ")(constraints) +
                    "true";
           }},
      {.path = "/model/attention_bias",
       .member = member(&M::attention_bias),
       .doc = with_models("Queries, keys, values and attention's output have biases", " (",
                          &ModelConstraints::optional_attention_bias, ")")},
      {.path = "/model/mlp_bias",
       .member = member(&M::mlp_bias),
       .doc = with_models("The MLP's linear layers have biases", " (",
                          &ModelConstraints::optional_mlp_bias, ")")},
      {.path = "/model/qk_norm",
       .member = member(&M::qk_norm),
       .doc = "Queries and keys go through an RMSNorm before their rotary positions: each head by "
              "itself, of olmoe all heads together; a choice of the model.",
       .derived =
           [](const ConfigConstraints& constraints) {
             return of_models("true for ", &ModelConstraints::qk_norm, ", else ")(constraints) +
                    "false";
           }},
      {.path = "/model/kv_lora_rank",
       .member = member(&M::kv_lora_rank),
       .doc = with_models("Elements of the vector from which latent attention makes a position's "
                          "keys and values",
                          "; must be given for ", &ModelConstraints::latent_attention, ""),
       .range = from(0, 65536)},
      {.path = "/model/q_lora_rank",
       .member = member(&M::q_lora_rank),
       .doc = with_models("Elements of the vector from which it makes the queries; 0: from the "
                          "layer's input",
                          " (", &ModelConstraints::latent_attention, ")"),
       .range = from(0, 65536)},
      {.path = "/model/qk_head_dim",
       .member = member(&M::qk_head_dim),
       .doc = with_models("Its elements of a query or key head without positions", " (",
                          &ModelConstraints::latent_attention, ")"),
       .range = from(0, 65536),
       .derived = of_models("128 for ", &ModelConstraints::latent_attention, "")},
      {.path = "/model/qk_pos_emb_head_dim",
       .member = member(&M::qk_pos_emb_head_dim),
       .doc = with_models("Those with rotary positions, an even number; all heads share the keys'",
                          " (", &ModelConstraints::latent_attention, ")"),
       .range = from(0, 65536),
       .derived = of_models("64 for ", &ModelConstraints::latent_attention, "")},
      {.path = "/model/v_head_dim",
       .member = member(&M::v_head_dim),
       .doc = with_models("Its elements of a value head", " (", &ModelConstraints::latent_attention,
                          ")"),
       .range = from(0, 65536),
       .derived = of_models("128 for ", &ModelConstraints::latent_attention, "")},
      {.path = "/model/mtp_num_layers",
       .member = member(&M::mtp_num_layers),
       .doc = with_models("Layers behind the others that predict further tokens in training, each "
                          "the token one position beyond the one before",
                          " (", &ModelConstraints::multi_token, ")"),
       .range = from(0, 64)},
      {.path = "/model/mtp_loss_scaling_factor",
       .member = member(&M::mtp_loss_scaling_factor),
       .doc = "Multiplies the mean of their losses, the auxiliary loss mtp_loss.",
       .range = fp32_or_zero()},
      {.path = "/model/sliding_window",
       .member = member(&M::sliding_window),
       .doc = with_models("The most keys that a query sees, its own included, in window_layers",
                          " (", has_window, ")"),
       .unit = "tokens",
       .range = from(1, 1e8),
       .derived = "none"},
      {.path = "/model/window_layers",
       .member = member(&M::window_layers),
       .doc = with_models(
           "The layers with the sliding window, counted from 0", "; all layers of ",
           [](const ModelConstraints& model) { return model.window == WindowRule::all_layers; },
           ""),
       .range = from(0, 1e5),
       .derived = "all layers, where sliding_window is given"},
      {.path = "/model/norm_epsilon",
       .member = member(&M::norm_epsilon),
       .doc = "Added to the variance in LayerNorm and RMSNorm.",
       .range = fp32()},
      {.path = "/model/rotary_base",
       .member = member(&M::rotary_base),
       .doc = with_models("Base of the rotary positions' wavelengths", " (", is_rotary, ")"),
       .range = {.min = 1.0000002, .max = kMost}},
      {.path = "/model/rope_scaling/rope_type",
       .member = rope(&RopeScalingConfig::rope_type),
       .doc = with_models(
           "linear divides all frequencies by `factor`; llama3 (Llama 3.1) and yarn (YaRN) divide "
           "the low ones only, yarn also multiplies sines and cosines",
           " (", is_rotary, ")"),
       .choices = rope_type_names()},
      {.path = "/model/rope_scaling/factor",
       .member = rope(&RopeScalingConfig::factor),
       .doc = "The scaled frequencies are divided by this; needed by every type but default.",
       .range = {.min = 1.0, .max = 1e6, .or_zero = true}},
      {.path = "/model/rope_scaling/original_max_position_embeddings",
       .member = rope(&RopeScalingConfig::original_max_position_embeddings),
       .doc = "The longest sequence before the scaling (llama3, yarn).",
       .unit = "tokens",
       .range = from(1, 1e8),
       .derived = "max_position_embeddings, for the types that read it"},
      {.path = "/model/rope_scaling/low_freq_factor",
       .member = rope(&RopeScalingConfig::low_freq_factor),
       .doc = "Pairs that turn less often than this in the original positions are scaled (llama3).",
       .range = fp32()},
      {.path = "/model/rope_scaling/high_freq_factor",
       .member = rope(&RopeScalingConfig::high_freq_factor),
       .doc = "Pairs that turn more often than this are kept (llama3).",
       .range = fp32()},
      {.path = "/model/rope_scaling/beta_fast",
       .member = rope(&RopeScalingConfig::beta_fast),
       .doc = "Pairs that turn more often than this in the original positions are kept (yarn).",
       .range = fp32()},
      {.path = "/model/rope_scaling/beta_slow",
       .member = rope(&RopeScalingConfig::beta_slow),
       .doc = "Pairs that turn less often than this are scaled (yarn).",
       .range = fp32()},
      {.path = "/model/rope_scaling/truncate",
       .member = rope(&RopeScalingConfig::truncate),
       .doc = "The two bounds are rounded to whole pairs (yarn)."},
      {.path = "/model/rope_scaling/attention_factor",
       .member = rope(&RopeScalingConfig::attention_factor),
       .doc = "Sines and cosines are multiplied by this (yarn). 0: the quotient of 0.1 · mscale · "
              "ln factor + 1 and 0.1 · mscale_all_dim · ln factor + 1 if both are given, else "
              "0.1 · ln factor + 1.",
       .range = fp32_or_zero()},
      {.path = "/model/rope_scaling/mscale",
       .member = rope(&RopeScalingConfig::mscale),
       .doc = "See attention_factor (yarn). 0: not given.",
       .range = fp32_or_zero()},
      {.path = "/model/rope_scaling/mscale_all_dim",
       .member = rope(&RopeScalingConfig::mscale_all_dim),
       .doc = "See attention_factor (yarn). 0: not given.",
       .range = fp32_or_zero()},
      {.path = "/model/init_method_std",
       .member = member(&M::init_method_std),
       .doc = "Standard deviation of the initial weights; projections back into the residual "
              "stream get it divided by √(2 · num_layers).",
       .range = fp32()},
      {.path = "/model/hidden_dropout",
       .member = member(&M::hidden_dropout),
       .doc = "Dropout after the embedding, the attention and the MLP.",
       .range = fp32_fraction()},
      {.path = "/model/attention_dropout",
       .member = member(&M::attention_dropout),
       .doc = "Dropout of the attention probabilities.",
       .range = fp32_fraction()},
  };
}

std::vector<Field> parallel_fields() {
  const auto member = [](auto m) { return in(&Config::parallel, m); };
  using P = ParallelConfig;
  return {
      {.path = "/parallel/data_parallel_size",
       .member = member(&P::data_parallel_size),
       .doc = "Replicas of the model; \"auto\" takes as many as the ranks that run allow "
              "(`--ranks N`, or the size of the MPI world).",
       .unit = "ranks",
       .range = from(1, kMaxRanks),
       .choices = {{"auto"}},
       .derived = "\"auto\" where the number of ranks is known, else 1"},
      {.path = "/parallel/tensor_model_parallel_size",
       .member = member(&P::tensor_model_parallel_size),
       .doc = "Ranks that share each layer; divides num_attention_heads, num_query_groups and "
              "ffn_hidden_size.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/pipeline_model_parallel_size",
       .member = member(&P::pipeline_model_parallel_size),
       .doc = "Ranks that a micro-batch passes one after the other.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/virtual_pipeline_model_parallel_size",
       .member = member(&P::virtual_pipeline_model_parallel_size),
       .doc = "Chunks of the model on each pipeline rank; more than one needs a schedule that "
              "interleaves them.",
       .unit = "chunks",
       .range = from(1, 1e5),
       .derived = "2 where the schedule is given and needs several, else 1"},
      {.path = "/parallel/sequence_parallel",
       .member = member(&P::sequence_parallel),
       .doc = "Shards the activations between the tensor-parallel parts over the tensor ranks "
              "(reduce-scatter and all-gather in place of all-reduce). With one tensor rank it is "
              "switched off."},
      {.path = "/parallel/tp_comm_overlap",
       .member = member(&P::tp_comm_overlap),
       .doc = "With sequence_parallel: gathers and reductions move one tensor rank's rows at a "
              "time, concurrently with the products of the rows that have arrived."},
      {.path = "/parallel/context_parallel_size",
       .member = member(&P::context_parallel_size),
       .doc =
           "Ranks that share each sample: a rank holds two pieces of it, one from its first half "
           "and one from its second, so that all have about equal work.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/cp_comm_type",
       .member = member(&P::cp_comm_type),
       .doc = "How attention exchanges positions among the ranks that share a sample: keys and "
              "values around a ring (p2p) or gathered (all_gather), positions for heads (a2a, "
              "where context_parallel_size divides each tensor rank's heads), or positions for "
              "heads among neighbours and a ring across them (a2a+p2p).",
       .choices = {{"p2p"}, {"all_gather"}, {"a2a"}, {P::both_exchanges}}},
      {.path = "/parallel/hierarchical_context_parallel_sizes",
       .member = member(&P::hierarchical_context_parallel_sizes),
       .doc =
           "Of cp_comm_type \"a2a+p2p\": [neighbours that exchange positions for heads, ranks of "
           "a ring], whose product is context_parallel_size. The first divides each tensor "
           "rank's heads.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/expert_model_parallel_size",
       .member = member(&P::expert_model_parallel_size),
       .doc = "Groups of ranks with different experts (model.moe); divides num_experts. With "
              "expert_tensor_parallel_size it divides the ranks of a pipeline stage, neighbours in "
              "rank_order first.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/expert_tensor_parallel_size",
       .member = member(&P::expert_tensor_parallel_size),
       .doc = "Ranks that share each expert; divides model.moe.ffn_hidden_size.",
       .unit = "ranks",
       .range = from(1, kMaxRanks),
       .derived = "tensor_model_parallel_size where the model has experts"},
      {.path = "/parallel/rank_order",
       .member = member(&P::rank_order),
       .doc = fmt::format("How ranks are numbered: the axes {} joined by dashes, the one that "
                          "neighbouring ranks differ in first. An axis of size 1 may be left out; "
                          "name one whose size is derived.",
                          fmt::join(ordered_axes({.context_parallel_size = 2}), ", "))},
  };
}

std::vector<Field> pipeline_fields() {
  const auto member = [](auto m) { return in(&Config::pipeline, m); };
  using P = PipelineConfig;
  return {
      {.path = "/pipeline/schedule",
       .member = member(&P::schedule),
       .doc = "The order of forwards and backwards on each pipeline rank.",
       .kinds =
           [](const ConfigConstraints& constraints) { return names_of(constraints.schedules); },
       .derived =
           [](const ConfigConstraints& constraints) {
             return fmt::format("\"{}\" with several chunks, else \"{}\"",
                                default_schedule(constraints.schedules, true),
                                default_schedule(constraints.schedules, false));
           }},
      {.path = "/pipeline/schedule_file",
       .member = member(&P::schedule_file),
       .doc = "A schedule of your own as CSV (`trident schedule --format csv` writes the form). It "
              "has to be a flushed schedule; `schedule` is then ignored.",
       .derived = "none"},
      {.path = "/pipeline/microbatch_group_size_per_vp_stage",
       .member = member(&P::microbatch_group_size_per_vp_stage),
       .doc = "Micro-batches that the interleaved schedules run through one chunk before they turn "
              "to the next.",
       .unit = "micro-batches",
       .range = from(1, 1e6),
       .derived = "the pipeline size p where it divides the micro-batches m, else m / ⌊m/p⌋"},
      {.path = "/pipeline/layer_split",
       .member = member(&P::layer_split),
       .doc = "Layers of each stage: a list in stage order, one number for each chunk of each "
              "pipeline rank; \"even\", which gives the remainder to the earliest stages; or "
              "\"auto\", which minimizes the FLOPs of the busiest rank, with embedding and head "
              "counted.",
       .unit = "layers",
       .range = from(1, 1e5),
       .choices = {{"even"}, {"auto"}},
       .derived = "\"even\""},
  };
}

std::vector<Field> batch_fields() {
  const auto member = [](auto m) { return in(&Config::batch, m); };
  using B = BatchConfig;
  return {
      {.path = "/batch/global_batch_size",
       .member = member(&B::global_batch_size),
       .doc = "Sequences of one step over all ranks: micro_batch_size × "
              "gradient_accumulation_steps × data_parallel_size.",
       .unit = "sequences",
       .range = from(1, 1e9),
       .derived = "the product; this or micro_batch_size must be given"},
      {.path = "/batch/micro_batch_size",
       .member = member(&B::micro_batch_size),
       .doc = "Sequences that pass the model at once; \"auto\": the most that fit the machine's "
              "memory, of those that divide a replica's part of global_batch_size.",
       .unit = "sequences",
       .range = from(1, 1e6),
       .choices = {{"auto"}},
       .derived = "global_batch_size / (gradient_accumulation_steps × data_parallel_size)"},
      {.path = "/batch/gradient_accumulation_steps",
       .member = member(&B::gradient_accumulation_steps),
       .doc = "Micro-batches that each replica runs before the weights change. They fill the "
              "pipeline.",
       .unit = "micro-batches",
       .range = from(1, 1e6),
       .derived = "global_batch_size / (micro_batch_size × data_parallel_size), 1 where only one "
                  "of them is given"},
      {.path = "/batch/rampup_batch_size",
       .member = member(&B::rampup_batch_size),
       .doc =
           "[start, increment, samples]: batches begin with `start` sequences and grow by "
           "`increment` up to global_batch_size while the first `samples` sequences are consumed, "
           "after equal numbers of sequences. [] (no ramp): all batches have the same size.",
       .unit = "sequences",
       .range = from(1, 1e15)},
  };
}

std::vector<Field> zero_fields() {
  const auto member = [](auto m) { return in(&Config::zero_optimization, m); };
  using Z = ZeroConfig;
  return {
      {.path = "/zero_optimization/stage",
       .member = member(&Z::stage),
       .doc = "The state that the data-parallel ranks shard: 0 none, 1 the optimizer's state, 2 "
              "the gradients too, 3 the weights too.",
       .range = from(0, 3)},
      {.path = "/zero_optimization/reduce_bucket_size",
       .member = member(&Z::reduce_bucket_size),
       .doc = "Gradients are reduced in buckets of about this size.",
       .unit = "elements",
       .range = from(1, 1e12)},
      {.path = "/zero_optimization/allgather_bucket_size",
       .member = member(&Z::allgather_bucket_size),
       .doc = "Updated weights are gathered in buckets of about this size (stage 1 and above).",
       .unit = "elements",
       .range = from(1, 1e12)},
      {.path = "/zero_optimization/overlap_comm",
       .member = member(&Z::overlap_comm),
       .doc = "Reduces full buckets while the backward pass continues. Otherwise a rank reduces "
              "after its last backward, so that no pipeline stage waits for another's reduction; "
              "but buckets that live only until they are reduced (reduce_each_micro_batch, or "
              "stages 2 and 3 with one micro-batch) are reduced within backward, and the earlier "
              "stages wait for that."},
      {.path = "/zero_optimization/reduce_each_micro_batch",
       .member = member(&Z::reduce_each_micro_batch),
       .doc = "Reduces gradients after each micro-batch, not once a step: stages 2 and 3 then hold "
              "no full gradients between micro-batches, but send the gradients of each one.",
       .derived = "true for stages 2 and 3, else false"},
      {.path = "/zero_optimization/stage3_prefetch_bucket_size",
       .member = member(&Z::stage3_prefetch_bucket_size),
       .doc = "Stage 3: the next layer's weights are gathered ahead of their use, up to this many.",
       .unit = "elements",
       .range = from(0, 1e12)},
      {.path = "/zero_optimization/stage3_param_persistence_threshold",
       .member = member(&Z::stage3_param_persistence_threshold),
       .doc = "Stage 3: parameters smaller than this stay replicated on every rank.",
       .unit = "elements",
       .range = from(0, 1e12)},
  };
}

}  // namespace trident::config_detail
