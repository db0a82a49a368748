// GPT-2's files, as transformers' GPT2LMHeadModel and llama.cpp store them.
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "models/family_format_tables.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys of transformers' GPT2Config, 4.30 to 5.24. A padding token has no effect on GPT-2's
// embedding.
constexpr HuggingFaceKey gpt2_keys[] = {
    {"vocab_size", Use::model},
    {"n_positions", Use::model},
    {"max_position_embeddings", Use::model},
    {"n_embd", Use::model},
    {"hidden_size", Use::model},
    {"n_layer", Use::model},
    {"num_hidden_layers", Use::model},
    {"n_head", Use::model},
    {"num_attention_heads", Use::model},
    {"n_inner", Use::model},
    {"activation_function", Use::model},
    {"layer_norm_epsilon", Use::model},
    {"n_ctx", Use::training},  // once the mask's size, now unused
    {"resid_pdrop", Use::training},
    {"embd_pdrop", Use::training},
    {"attn_pdrop", Use::training},
    // The same product and softmax, with another order of rounding.
    {"reorder_and_upcast_attn", Use::training},
    {"add_cross_attention", Use::fixed, "[false, null]"},
    {"scale_attn_weights", Use::fixed, "[true]"},
    {"scale_attn_by_inverse_layer_idx", Use::fixed, "[false, null]"},
    // Settings of heads that a language model doesn't have.
    {"summary_type", Use::weights},
    {"summary_use_proj", Use::weights},
    {"summary_activation", Use::weights},
    {"summary_proj_to_labels", Use::weights},
    {"summary_first_dropout", Use::weights},
    {"summary_last_dropout", Use::weights},
    {"classifier_dropout", Use::weights},
    {"predict_special_tokens", Use::weights},
};

constexpr std::string_view gpt2_classes[] = {"GPT2LMHeadModel", "GPT2Model"};

// Conv1D's matrices are (in, out), so they are transposed.
constexpr StoredTensor gpt2_tensors[] = {
    {"embedding.weight", "transformer.wte.weight", "token_embd.weight"},
    {"positions.weight", "transformer.wpe.weight", "position_embd.weight"},
    {"layers.*.attention_norm.weight", "transformer.h.*.ln_1.weight", "blk.*.attn_norm.weight"},
    {"layers.*.attention_norm.bias", "transformer.h.*.ln_1.bias", "blk.*.attn_norm.bias"},
    {"layers.*.attention.qkv.weight", "transformer.h.*.attn.c_attn.weight", "blk.*.attn_qkv.weight",
     StoredRows::all, true},
    {"layers.*.attention.qkv.bias", "transformer.h.*.attn.c_attn.bias", "blk.*.attn_qkv.bias"},
    {"layers.*.attention.output.weight", "transformer.h.*.attn.c_proj.weight",
     "blk.*.attn_output.weight", StoredRows::all, true},
    {"layers.*.attention.output.bias", "transformer.h.*.attn.c_proj.bias",
     "blk.*.attn_output.bias"},
    {"layers.*.mlp_norm.weight", "transformer.h.*.ln_2.weight", "blk.*.ffn_norm.weight"},
    {"layers.*.mlp_norm.bias", "transformer.h.*.ln_2.bias", "blk.*.ffn_norm.bias"},
    {"layers.*.mlp.up.weight", "transformer.h.*.mlp.c_fc.weight", "blk.*.ffn_up.weight",
     StoredRows::all, true},
    {"layers.*.mlp.up.bias", "transformer.h.*.mlp.c_fc.bias", "blk.*.ffn_up.bias"},
    {"layers.*.mlp.down.weight", "transformer.h.*.mlp.c_proj.weight", "blk.*.ffn_down.weight",
     StoredRows::all, true},
    {"layers.*.mlp.down.bias", "transformer.h.*.mlp.c_proj.bias", "blk.*.ffn_down.bias"},
    {"final_norm.weight", "transformer.ln_f.weight", "output_norm.weight"},
    {"final_norm.bias", "transformer.ln_f.bias", "output_norm.bias"},
    {"output.weight", "lm_head.weight", "output.weight"},
};

// The causal mask.
constexpr std::string_view gpt2_buffers[] = {"transformer.h.*.attn.bias",
                                             "transformer.h.*.attn.masked_bias"};

std::string gpt2_write_config(const ModelConfig& m, DType dtype) {
  return json_text(nlohmann::ordered_json{{"architectures", {"GPT2LMHeadModel"}},
                                          {"model_type", "gpt2"},
                                          {"activation_function", "gelu_new"},
                                          {"n_layer", m.num_layers},
                                          {"n_embd", m.hidden_size},
                                          {"n_head", m.num_attention_heads},
                                          {"n_inner", m.ffn_hidden_size},
                                          {"n_positions", m.max_position_embeddings},
                                          {"n_ctx", m.max_position_embeddings},
                                          {"vocab_size", m.vocab_size},
                                          {"layer_norm_epsilon", m.norm_epsilon},
                                          {"initializer_range", m.init_method_std},
                                          {"resid_pdrop", m.hidden_dropout},
                                          {"embd_pdrop", m.hidden_dropout},
                                          {"attn_pdrop", m.attention_dropout},
                                          {"tie_word_embeddings", m.tie_word_embeddings},
                                          {"bos_token_id", nullptr},
                                          {"eos_token_id", nullptr},
                                          {"torch_dtype", torch_name_of(dtype)}},
                   2);
}

std::string gpt2_read_config(HuggingFaceConfig& hf) {
  const std::int64_t hidden = hf.size("n_embd", "hidden_size");
  const nlohmann::json model{
      {"architecture", "gpt2"},
      {"num_layers", hf.size("n_layer", "num_hidden_layers")},
      {"hidden_size", hidden},
      {"num_attention_heads", hf.size("n_head", "num_attention_heads")},
      {"ffn_hidden_size", hf.size_or("n_inner", 4 * hidden)},
      {"max_position_embeddings", hf.size("n_positions", "max_position_embeddings")},
      {"vocab_size", hf.size("vocab_size")},
      {"norm_epsilon", hf.number_or("layer_norm_epsilon", 1e-5)},
      {"tie_word_embeddings", hf.flag_or("tie_word_embeddings", true)}};
  // All of these are the tanh form; "gelu" is the exact form.
  hf.require_word("activation_function",
                  {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast"});
  hf.finish();
  return json_text(model);
}

void gpt2_gguf_keys(const ModelConfig& m, GgufForm& form) {
  form.sizes = {{"context_length", m.max_position_embeddings},
                {"embedding_length", m.hidden_size},
                {"block_count", m.num_layers},
                {"feed_forward_length", m.ffn_hidden_size},
                {"attention.head_count", m.num_attention_heads}};
  form.numbers = {{"attention.layer_norm_epsilon", m.norm_epsilon}};
}

constexpr FamilyFormatTables gpt2_tables{.model_type = "gpt2",
                                         .classes = gpt2_classes,
                                         .keys = {gpt2_keys},
                                         .tensors = gpt2_tensors,
                                         .buffers = gpt2_buffers,
                                         .write_config = gpt2_write_config,
                                         .read_config = gpt2_read_config,
                                         .gguf_keys = gpt2_gguf_keys};

}  // namespace

const FamilyFormatTables& gpt2_formats() {
  return gpt2_tables;
}

}  // namespace trident
