// DeepSeek-V3's files, as transformers' DeepseekV3ForCausalLM stores them: Llama's, with the
// projections of latent attention, experts with biases in all layers but the first ones, and one
// that all tokens take. The layers that predict further tokens are named as in DeepSeek's release;
// transformers passes over them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files/json.h"
#include "models/expert_formats.h"
#include "models/llama_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys that transformers' DeepseekV3Config, 4.51 to 5.24, has beside Llama's.
constexpr HuggingFaceKey deepseek_v3_keys[] = {
    {"attention_bias", Use::model},
    {"pretraining_tp", Use::training},
    {"q_lora_rank", Use::model},
    {"kv_lora_rank", Use::model},
    {"qk_nope_head_dim", Use::model},
    {"qk_rope_head_dim", Use::model},
    {"v_head_dim", Use::model},
    // These two follow from the others, whatever the file says.
    {"qk_head_dim", Use::file},
    {"head_dim", Use::file},
    {"rope_interleave", Use::fixed, "[true]"},
    {"n_routed_experts", Use::model},
    {"num_local_experts", Use::model},
    {"num_experts_per_tok", Use::model},
    {"moe_intermediate_size", Use::model},
    {"n_shared_experts", Use::model},
    {"n_group", Use::model},
    {"topk_group", Use::model},
    {"first_k_dense_replace", Use::model},
    {"norm_topk_prob", Use::model},
    {"routed_scaling_factor", Use::model},
    {"output_router_logits", Use::training},
    // The layers behind the last one, which predict further tokens, if the config asks for them.
    {"num_nextn_predict_layers", Use::model},
    {"num_mtp_layers", Use::model},
    {"quantization_config", Use::model},
    // Published folders point to DeepSeek's own code, which transformers' class replaces.
    {"auto_map", Use::model},
};

constexpr std::string_view deepseek_v3_classes[] = {"DeepseekV3ForCausalLM", "DeepseekV3Model"};

const std::vector<StoredTensor>& deepseek_v3_tensors() {
  static const std::vector<StoredTensor> tensors = with_mlp_expert_tensors(
      {{.ours = "layers.*.enorm.weight",
        .hugging_face = "model.layers.*.enorm.weight",
        .gguf = "blk.*.nextn.enorm.weight"},
       {.ours = "layers.*.hnorm.weight",
        .hugging_face = "model.layers.*.hnorm.weight",
        .gguf = "blk.*.nextn.hnorm.weight"},
       {.ours = "layers.*.eh_proj.weight",
        .hugging_face = "model.layers.*.eh_proj.weight",
        .gguf = "blk.*.nextn.eh_proj.weight"},
       {.ours = "layers.*.shared_head_norm.weight",
        .hugging_face = "model.layers.*.shared_head.norm.weight",
        .gguf = "blk.*.nextn.shared_head_norm.weight"},
       {.ours = "layers.*.attention.q.weight",
        .hugging_face = "model.layers.*.self_attn.q_proj.weight",
        .gguf = "blk.*.attn_q.weight"},
       {.ours = "layers.*.attention.q_down.weight",
        .hugging_face = "model.layers.*.self_attn.q_a_proj.weight",
        .gguf = "blk.*.attn_q_a.weight"},
       {.ours = "layers.*.attention.q_down.bias",
        .hugging_face = "model.layers.*.self_attn.q_a_proj.bias",
        .gguf = "blk.*.attn_q_a.bias"},
       {.ours = "layers.*.attention.q_latent_norm.weight",
        .hugging_face = "model.layers.*.self_attn.q_a_layernorm.weight",
        .gguf = "blk.*.attn_q_a_norm.weight"},
       {.ours = "layers.*.attention.q_up.weight",
        .hugging_face = "model.layers.*.self_attn.q_b_proj.weight",
        .gguf = "blk.*.attn_q_b.weight"},
       {.ours = "layers.*.attention.kv_down.weight",
        .hugging_face = "model.layers.*.self_attn.kv_a_proj_with_mqa.weight",
        .gguf = "blk.*.attn_kv_a_mqa.weight"},
       {.ours = "layers.*.attention.kv_down.bias",
        .hugging_face = "model.layers.*.self_attn.kv_a_proj_with_mqa.bias",
        .gguf = "blk.*.attn_kv_a_mqa.bias"},
       {.ours = "layers.*.attention.kv_latent_norm.weight",
        .hugging_face = "model.layers.*.self_attn.kv_a_layernorm.weight",
        .gguf = "blk.*.attn_kv_a_norm.weight"},
       {.ours = "layers.*.attention.kv_up.weight",
        .hugging_face = "model.layers.*.self_attn.kv_b_proj.weight",
        .gguf = "blk.*.attn_kv_b.weight"},
       {.ours = "layers.*.mlp.router.expert_bias",
        .hugging_face = "model.layers.*.mlp.gate.e_score_correction_bias",
        .gguf = "blk.*.exp_probs_b.bias"},
       {.ours = "layers.*.mlp.shared.up.weight",
        .hugging_face = "model.layers.*.mlp.shared_experts.gate_proj.weight",
        .gguf = "blk.*.ffn_gate_shexp.weight",
        .rows = StoredRows::shared_gate},
       {.ours = "layers.*.mlp.shared.up.weight",
        .hugging_face = "model.layers.*.mlp.shared_experts.up_proj.weight",
        .gguf = "blk.*.ffn_up_shexp.weight",
        .rows = StoredRows::shared_up},
       {.ours = "layers.*.mlp.shared.down.weight",
        .hugging_face = "model.layers.*.mlp.shared_experts.down_proj.weight",
        .gguf = "blk.*.ffn_down_shexp.weight"},
       // These follow the tables themselves.
       {.ours = "embedding.weight",
        .hugging_face = "model.layers.*.embed_tokens.weight",
        .gguf = "blk.*.nextn.embed_tokens.weight",
        .of_further_layers = true},
       {.ours = "output.weight",
        .hugging_face = "model.layers.*.shared_head.head.weight",
        .gguf = "blk.*.nextn.shared_head_head.weight",
        .of_further_layers = true}});
  return tensors;
}

std::string deepseek_v3_write_config(const ModelConfig& model, DType dtype) {
  const MoeConfig& moe = model.moe;
  nlohmann::ordered_json written =
      llama_config(model, dtype, "deepseek_v3", "DeepseekV3ForCausalLM");
  written["attention_bias"] = model.attention_bias;
  written["q_lora_rank"] = nullptr;
  if (model.q_lora_rank > 0) written["q_lora_rank"] = model.q_lora_rank;
  written["kv_lora_rank"] = model.kv_lora_rank;
  written["qk_nope_head_dim"] = model.qk_head_dim;
  written["qk_rope_head_dim"] = model.qk_pos_emb_head_dim;
  written["qk_head_dim"] = model.qk_head_dim + model.qk_pos_emb_head_dim;
  written["v_head_dim"] = model.v_head_dim;
  written["rope_interleave"] = true;
  written["n_routed_experts"] = moe.num_experts;
  written["num_experts_per_tok"] = moe.router_topk;
  written["moe_intermediate_size"] = moe.ffn_hidden_size;
  written["n_shared_experts"] = moe.shared_expert_intermediate_size / moe.ffn_hidden_size;
  written["n_group"] = moe.router_num_groups;
  written["topk_group"] = moe.router_group_topk;
  written["norm_topk_prob"] = moe.norm_topk_prob;
  written["routed_scaling_factor"] = moe.router_topk_scaling_factor;
  written["first_k_dense_replace"] = std::ranges::find(moe.layer_freq, 1) - moe.layer_freq.begin();
  written["num_nextn_predict_layers"] = model.mtp_num_layers;
  return json_text(written, 2);
}

// The other name of n_routed_experts in transformers 5 comes first there.
std::string_view count_key(const HuggingFaceConfig& hf) {
  return hf.gives("num_local_experts") ? "num_local_experts" : "n_routed_experts";
}

std::string deepseek_v3_read_config(HuggingFaceConfig& hf) {
  if (hf.gives("quantization_config")) {
    hf.refuse("quantization_config",
              "quantized weights are not read; convert the folder to bf16 first, for FP8 by "
              "inference/fp8_cast_bf16.py of DeepSeek-V3's repository");
  }
  for (const char* key : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank",
                          "n_group", "topk_group", "num_experts_per_tok", "moe_intermediate_size",
                          "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace"}) {
    if (!hf.is_missing(key) && !hf.gives(key)) hf.refuse(key, "transformers fails with this");
  }
  if (!hf.words_begin_with("auto_map", {"configuration_deepseek.", "modeling_deepseek."})) {
    hf.refuse("auto_map", "not supported; only DeepSeek's own code is known");
  }
  for (const char* key : {"first_k_dense_replace", "num_nextn_predict_layers", "num_mtp_layers"}) {
    hf.require_whole(key, false);
  }
  nlohmann::json model = llama_model(hf, "deepseek_v3", {.groups = 128});
  model["attention_bias"] = hf.flag_or("attention_bias", false);
  if (model["num_query_groups"] != model["num_attention_heads"]) {
    hf.refuse("num_key_value_heads",
              fmt::format("latent attention has as many as num_attention_heads ({}){}",
                          model["num_attention_heads"].get<std::int64_t>(),
                          hf.is_missing("num_key_value_heads") ? "; transformers takes 128" : ""));
  }
  const std::int64_t rotary = hf.size_or("qk_rope_head_dim", 64);
  model["head_dim"] = rotary;
  model["q_lora_rank"] = hf.is_missing("q_lora_rank") ? 1536
                         : hf.gives("q_lora_rank")    ? hf.size("q_lora_rank")
                                                      : 0;
  model["kv_lora_rank"] = hf.size_or("kv_lora_rank", 512);
  model["qk_head_dim"] = hf.size_or("qk_nope_head_dim", 128);
  model["qk_pos_emb_head_dim"] = rotary;
  model["v_head_dim"] = hf.size_or("v_head_dim", 128);
  const auto layers = model.at("num_layers").get<std::int64_t>();
  if (layers <= most_layers) {  // else the model is refused for its size
    std::vector<std::int64_t> freq(static_cast<std::size_t>(layers), 1);
    const std::int64_t usual = hf.is_missing("first_k_dense_replace") ? 3 : 0;
    const std::int64_t dense =
        std::clamp<std::int64_t>(hf.whole_or("first_k_dense_replace", usual), 0, layers);
    if (dense == layers) {
      hf.refuse("first_k_dense_replace",
                fmt::format("not supported; it leaves none of {} layers experts", layers));
    }
    std::fill_n(freq.begin(), dense, 0);
    const std::int64_t ffn = hf.size_or("moe_intermediate_size", 2048);
    nlohmann::json moe =
        moe_model(hf, {.count_key = count_key(hf), .topk = 8, .has_loss = false}, ffn, freq);
    // null counts as false there.
    const bool normed = hf.is_missing("norm_topk_prob") || hf.gives("norm_topk_prob");
    moe["norm_topk_prob"] = normed && hf.flag_or("norm_topk_prob", true);
    moe["router_topk_scaling_factor"] = hf.number_or("routed_scaling_factor", 2.5);
    moe["router_num_groups"] = hf.size_or("n_group", 8);
    moe["router_group_topk"] = hf.size_or("topk_group", 4);
    const std::int64_t shared = hf.size_or("n_shared_experts", 1);
    if (shared <= 65536 && ffn <= 100'000'000) {
      moe["shared_expert_intermediate_size"] = shared * ffn;
    } else {
      hf.refuse("n_shared_experts", "not supported; the shared experts are too large");
    }
    model["moe"] = std::move(moe);
  }
  hf.finish();
  return json_text(model);
}

// transformers' class has a default of one.
std::int64_t deepseek_v3_further_layers(HuggingFaceConfig& hf) {
  constexpr std::int64_t most = 64;  // the range of model.mtp_num_layers
  for (const char* key : {"num_mtp_layers", "num_nextn_predict_layers"}) {
    if (!hf.is_missing(key)) return std::clamp<std::int64_t>(hf.whole_or(key, 0), 0, most);
  }
  return 1;
}

// llama.cpp's deepseek2. The keys are those of files that store the projection of keys and values
// as one tensor (not split for each head, attention.key_length_mla).
void deepseek_v3_gguf_keys(const ModelConfig& m, GgufForm& form) {
  const MoeConfig& moe = m.moe;
  const RopeScalingConfig& scaling = m.rope_scaling;
  const auto refuse = [&](bool wrong, const char* what) {
    if (wrong) throw RequestError(fmt::format("llama.cpp's deepseek2 {}", what));
  };
  const std::int64_t dense = std::ranges::find(moe.layer_freq, 1) - moe.layer_freq.begin();
  refuse(m.attention_bias, "has no attention_bias, but this model has one");
  refuse(m.norm_epsilon != 1e-6, "gives the latents' norms rms_norm_eps, not 1e-6 as this model");
  refuse(moe.router_score_function != "sigmoid" || moe.shared_expert_intermediate_size == 0,
         "needs sigmoid scores and a shared expert");
  refuse(moe.num_experts < 2 || moe.num_experts > 1024, "has from 2 to 1024 experts");
  const bool plain =
      m.num_layers == 26 || m.num_layers == 27 || (m.num_layers == 48 && m.vocab_size == 128256);
  refuse((m.q_lora_rank == 0) != plain,
         "has queries without a latent (q_lora_rank null) where it has 26 or 27 layers, or 48 and "
         "128256 tokens, and there alone");
  refuse(scaling.rope_type != "default" && scaling.rope_type != "yarn",
         "has rope_type yarn or default only");
  form.sizes = {{"context_length", m.max_position_embeddings},
                {"embedding_length", m.hidden_size},
                {"block_count", m.num_layers},
                {"feed_forward_length", m.ffn_hidden_size},
                {"leading_dense_block_count", dense},
                {"attention.head_count", m.num_attention_heads},
                {"attention.head_count_kv", m.num_attention_heads},
                {"attention.key_length", m.qk_head_dim + m.qk_pos_emb_head_dim},
                {"attention.value_length", m.v_head_dim},
                {"attention.kv_lora_rank", m.kv_lora_rank},
                {"rope.dimension_count", m.qk_pos_emb_head_dim},
                {"expert_count", moe.num_experts},
                {"expert_used_count", moe.router_topk},
                {"expert_feed_forward_length", moe.ffn_hidden_size},
                {"expert_shared_count", moe.shared_expert_intermediate_size / moe.ffn_hidden_size},
                {"expert_gating_func", 2}};  // sigmoid
  if (m.q_lora_rank > 0) form.sizes.emplace_back("attention.q_lora_rank", m.q_lora_rank);
  if (moe.router_num_groups > 1) {
    form.sizes.emplace_back("expert_group_count", moe.router_num_groups);
    form.sizes.emplace_back("expert_group_used_count", moe.router_group_topk);
  }
  form.numbers = {{"attention.layer_norm_rms_epsilon", m.norm_epsilon},
                  {"rope.freq_base", m.rotary_base},
                  {"expert_weights_scale", moe.router_topk_scaling_factor}};
  form.flags = {{"expert_weights_norm", moe.norm_topk_prob}};
  if (scaling.rope_type != "yarn") return;
  refuse(
      scaling.mscale_all_dim == 0 || scaling.mscale != scaling.mscale_all_dim ||
          scaling.attention_factor > 0,
      "has yarn with equal mscale and mscale_all_dim only; this model's rope_scaling has others");
  refuse(
      !scaling.truncate || scaling.beta_fast != 32 || scaling.beta_slow != 1,
      "has yarn with beta_fast 32, beta_slow 1 and truncate true only; this model's rope_scaling "
      "has others");
  form.words = {{"rope.scaling.type", "yarn"}};
  form.sizes.emplace_back("rope.scaling.original_context_length",
                          scaling.original_max_position_embeddings);
  form.numbers.emplace_back("rope.scaling.factor", scaling.factor);
  form.numbers.emplace_back("rope.scaling.yarn_log_multiplier", 0.1 * scaling.mscale_all_dim);
}

}  // namespace

const FamilyFormatTables& deepseek_v3_formats() {
  static const FamilyFormatTables tables{.model_type = "deepseek_v3",
                                         .classes = deepseek_v3_classes,
                                         .keys = {deepseek_v3_keys, llama_shared_keys()},
                                         .tensors = deepseek_v3_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = deepseek_v3_write_config,
                                         .read_config = deepseek_v3_read_config,
                                         .further_layers = deepseek_v3_further_layers,
                                         .gguf_architecture = "deepseek2",
                                         .gguf_keys = deepseek_v3_gguf_keys};
  return tables;
}

}  // namespace trident
