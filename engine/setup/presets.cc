#include "engine/setup/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "settings/config.h"

namespace trident {
namespace {

using nlohmann::ordered_json;

// The common part of all presets; a preset's own keys override it. Rates and batches of the larger
// presets are from their papers: GPT-3's table 2.1 (https://arxiv.org/abs/2005.14165) and Llama 3's
// (https://arxiv.org/abs/2407.21783), batches in sequences.
constexpr const char* kCommon = R"({
  "model": {},
  "parallel": {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1},
  "batch": {"global_batch_size": 32, "micro_batch_size": "auto"},
  "precision": {"dtype": "bf16"},
  "optimizer": {"type": "AdamW", "params": {"lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "gradient_clipping": 1.0,
  "scheduler": {"type": "cosine", "warmup_ratio": 0.02, "min_lr": 6e-5},
  "data": {"train": [{"path": "texts"}], "split": "949,50,1",
           "tokenizer": {"type": "file", "path": "tokenizer.json"}, "sequence_length": 1024},
  "training": {"train_iters": 10000, "eval_interval": 500},
  "checkpoint": {"save_interval": 1000}
})";

Preset gpt2(const char* name, const char* about, int layers, int hidden, int heads, double lr,
            double min_lr, const char* more = "{}", int gpus = 0) {
  ordered_json config{{"model",
                       {{"architecture", "gpt2"},
                        {"num_layers", layers},
                        {"hidden_size", hidden},
                        {"num_attention_heads", heads},
                        {"max_position_embeddings", 1024},
                        {"vocab_size", 50257}}},
                      {"optimizer", {{"params", {{"lr", lr}}}}},
                      {"scheduler", {{"min_lr", min_lr}}}};
  config.merge_patch(ordered_json_or_null(more));
  return {name, about, json_text(config), gpus};
}

constexpr int kLlama3Vocabulary = 128256;

struct LlamaSize {
  int layers, hidden, heads, groups, ffn;
  bool tied;
};

// Llama 3's settings.
Preset llama(const char* name, const char* about, const LlamaSize& size, double lr, double min_lr,
             const char* more, int gpus) {
  ordered_json config{{"model",
                       {{"architecture", "llama"},
                        {"num_layers", size.layers},
                        {"hidden_size", size.hidden},
                        {"num_attention_heads", size.heads},
                        {"num_query_groups", size.groups},
                        {"ffn_hidden_size", size.ffn},
                        {"max_position_embeddings", 8192},
                        {"vocab_size", kLlama3Vocabulary},
                        {"tie_word_embeddings", size.tied},
                        {"rotary_base", 500000.0}}},
                      {"optimizer", {{"params", {{"lr", lr}}}}},
                      {"scheduler", {{"min_lr", min_lr}}},
                      {"data", {{"sequence_length", 8192}}}};
  config.merge_patch(ordered_json_or_null(more));
  return {name, about, json_text(config), gpus};
}

}  // namespace

const std::vector<Preset>& presets() {
  constexpr const char* kLargeBatch =
      R"({"parallel": "auto", "batch": {"global_batch_size": 512}})";
  static const std::vector<Preset> all = {
      {"bytes", "0.8M parameters on bytes, trains on any text of 10 kB and more in a minute", R"({
         "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 128,
                   "num_attention_heads": 4},
         "batch": {"global_batch_size": 16, "micro_batch_size": 8},
         "precision": {"dtype": "fp32"},
         "optimizer": {"params": {"lr": 2e-3, "betas": [0.9, 0.99]}},
         "scheduler": {"warmup_ratio": 0.05, "min_lr": 2e-4},
         "data": {"train": [{"path": "text.txt"}], "tokenizer": {"type": "byte", "path": null},
                  "sequence_length": 128},
         "training": {"train_iters": 1000, "eval_interval": 200},
         "checkpoint": {"save_interval": 500}})"},
      gpt2("gpt2_124m", "GPT-2", 12, 768, 12, 6e-4, 6e-5, R"({"precision": {"dtype": "fp32"}})"),
      {"llama_135m", "SmolLM's sizes", R"({
         "model": {"architecture": "llama", "num_layers": 30, "hidden_size": 576,
                   "num_attention_heads": 9, "num_query_groups": 3, "ffn_hidden_size": 1536,
                   "max_position_embeddings": 2048, "vocab_size": 49152,
                   "tie_word_embeddings": true},
         "optimizer": {"params": {"lr": 6e-4}},
         "data": {"sequence_length": 2048}})"},
      gpt2("gpt2_355m", "GPT-2 medium", 24, 1024, 16, 3e-4, 3e-5),
      gpt2("gpt2_774m", "GPT-2 large", 36, 1280, 20, 2.5e-4, 2.5e-5),
      llama("llama_1b", "Llama 3.2 1B's sizes", {16, 2048, 32, 8, 8192, true}, 3e-4, 3e-5,
            kLargeBatch, 8),
      gpt2("gpt2_1.5b", "GPT-2 XL", 48, 1600, 25, 2e-4, 2e-5, kLargeBatch, 8),
      llama("llama_3b", "Llama 3.2 3B's sizes", {28, 3072, 24, 8, 8192, true}, 3e-4, 3e-5,
            kLargeBatch, 8),
      llama("llama_8b", "Llama 3 8B's sizes", {32, 4096, 32, 8, 14336, false}, 3e-4, 3e-5,
            kLargeBatch, 8),
      // Llama 3.1's scaling of rotary positions, and its context.
      llama("llama_8b_128k", "Llama 3.1 8B's sizes on samples of 131,072 tokens",
            {32, 4096, 32, 8, 14336, false}, 3e-4, 3e-5, R"({
              "model": {"max_position_embeddings": 131072,
                        "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                         "high_freq_factor": 4,
                                         "original_max_position_embeddings": 8192}},
              "parallel": {"tensor_model_parallel_size": 8, "sequence_parallel": true,
                           "context_parallel_size": 8},
              "batch": {"global_batch_size": 32, "micro_batch_size": 1},
              "data": {"sequence_length": 131072}})",
            64),
      llama("llama_70b", "Llama 3 70B's sizes", {80, 8192, 64, 8, 28672, false}, 1.5e-4, 1.5e-5,
            kLargeBatch, 64),
      // Its technical report (https://arxiv.org/abs/2505.09388) gives no rates.
      {"qwen3_30b_a3b", "Qwen3 30B A3B's sizes, 128 experts of which a token takes 8", R"({
         "model": {"architecture": "qwen3_moe", "num_layers": 48, "hidden_size": 2048,
                   "num_attention_heads": 32, "num_query_groups": 4, "head_dim": 128,
                   "ffn_hidden_size": 6144, "max_position_embeddings": 4096, "vocab_size": 151936,
                   "norm_epsilon": 1e-6, "rotary_base": 1000000.0,
                   "moe": {"num_experts": 128, "router_topk": 8, "ffn_hidden_size": 768,
                           "norm_topk_prob": true}},
         "parallel": "auto",
         "batch": {"global_batch_size": 1024},
         "optimizer": {"params": {"lr": 3e-4}},
         "scheduler": {"min_lr": 3e-5},
         "data": {"sequence_length": 4096}})",
       64},
      gpt2("gpt3_175b", "GPT-3's sizes", 96, 12288, 96, 6e-5, 6e-6,
           R"({"model": {"max_position_embeddings": 2048}, "data": {"sequence_length": 2048},
               "parallel": "auto", "batch": {"global_batch_size": 1536}})",
           128),
      {"deepseek_v3", "DeepSeek-V3's sizes, 671B parameters, 37B of them for a token", R"({
         "model": {"architecture": "deepseek_v3", "num_layers": 61, "hidden_size": 7168,
                   "num_attention_heads": 128, "ffn_hidden_size": 18432,
                   "max_position_embeddings": 4096, "vocab_size": 129280, "norm_epsilon": 1e-6,
                   "init_method_std": 0.006, "q_lora_rank": 1536, "kv_lora_rank": 512,
                   "moe": {"num_experts": 256, "router_topk": 8, "ffn_hidden_size": 2048,
                           "shared_expert_intermediate_size": 2048, "router_num_groups": 8,
                           "router_group_topk": 4, "router_topk_scaling_factor": 2.5,
                           "aux_loss_coeff": 1e-4,
                           "layer_freq": [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}},
         "parallel": "auto",
         "batch": {"global_batch_size": 15360},
         "optimizer": {"params": {"lr": 2.2e-4, "betas": [0.9, 0.95]}},
         "scheduler": {"min_lr": 2.2e-5},
         "data": {"sequence_length": 4096}})",
       2048},
      llama("llama_405b", "Llama 3.1 405B's sizes", {126, 16384, 128, 8, 53248, false}, 8e-5, 8e-6,
            R"({"parallel": "auto", "batch": {"global_batch_size": 2048}})", 256),
  };
  return all;
}

namespace {

const Preset& preset_named(const std::string& name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found != presets().end()) return *found;
  std::vector<std::string> names;
  for (const Preset& one : presets()) names.push_back(one.name);
  throw RequestError(fmt::format("--preset: there is no \"{}\"; did you mean {}?", printable(name),
                                 nearest(name, names)));
}

ordered_json config_of(const Preset& preset) {
  ordered_json config = ordered_json_or_null(kCommon);
  config.merge_patch(ordered_json_or_null(preset.config));
  return config;
}

}  // namespace

std::vector<std::string> preset_next(const std::string& preset, const std::string& file) {
  const Preset& found = preset_named(preset);
  const ordered_json config = config_of(found);
  const auto texts = config["data"]["train"][0]["path"].get<std::string>();
  std::vector<std::string> lines;
  if (config["data"]["tokenizer"]["type"] == "byte") {
    lines.push_back(fmt::format("# put a text into {}, or name yours in data.train", texts));
  } else {
    // The pre-tokenizer of the model with this vocabulary.
    const auto& vocab_size = config["model"]["vocab_size"];
    const char* words = vocab_size == kLlama3Vocabulary ? " --pre-tokenizer llama3" : "";
    lines.push_back(
        fmt::format("# put texts (.txt, .jsonl, .parquet, also .gz and .zst) into {0}/, or name "
                    "yours in data.train and here in place of {0}",
                    texts));
    lines.emplace_back("# a tokenizer for them, unless you have a tokenizer.json:");
    lines.push_back(fmt::format("trident tokenizer train {} --vocab-size {}{} --out {}", texts,
                                vocab_size.get<int>(), words,
                                config["data"]["tokenizer"]["path"].get<std::string>()));
  }
  if (found.gpus > 0) {
    lines.emplace_back(
        "# layouts with predicted time and memory; the GPUs needn't be on this machine:");
    lines.push_back(
        fmt::format("trident search {} --machine dgx_h100 --ranks {}", file, found.gpus));
    lines.emplace_back("# on GPUs; start several under mpirun or srun:");
  }
  lines.push_back("trident train " + file);
  return lines;
}

std::string preset_config(const std::string& preset, const std::string& name,
                          const ConfigConstraints& constraints) {
  const Preset& found = preset_named(preset);
  ordered_json config = config_of(found);
  config["checkpoint"]["save"] = "runs/" + name + "/weights";
  config["logging"]["dir"] = "runs/" + name;
  std::string layout;
  if (config["parallel"] == "auto") {
    layout =
        "// The layout is chosen by measuring the machine that it runs on; for another machine\n"
        "// name its file in runtime.machine (configs/machines, docs/simulate.md).\n";
  }
  return fmt::format(
      "// {}: {}.\n// `trident plan` predicts its memory, `trident train` trains it.\n{}"
      "// Every key there is: docs/config.md, or `trident schema --markdown`. For an editor that\n"
      "// checks keys: `trident schema > schema.json`, and \"$schema\": \"schema.json\" below.\n{}",
      found.name, found.about, layout, annotated_config(json_text(config), constraints));
}

}  // namespace trident
