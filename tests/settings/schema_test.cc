#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "settings/fields.h"
#include "tests/settings/support.h"
#include "tests/support/source_dir.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kRoot = source_dir();

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The published names. Each must remain a key of the file.
constexpr const char* kPublishedKeys = R"(
model: architecture num_layers hidden_size num_attention_heads num_query_groups head_dim ffn_hidden_size
  qk_norm sliding_window window_layers rope_scaling/rope_type rope_scaling/factor
  rope_scaling/original_max_position_embeddings rope_scaling/low_freq_factor
  rope_scaling/high_freq_factor rope_scaling/beta_fast rope_scaling/beta_slow rope_scaling/truncate
  rope_scaling/attention_factor rope_scaling/mscale rope_scaling/mscale_all_dim
  max_position_embeddings vocab_size pad_token_id make_vocab_size_divisible_by tie_word_embeddings attention_bias mlp_bias norm_epsilon
  rotary_base init_method_std hidden_dropout attention_dropout
  moe/num_experts moe/router_topk moe/ffn_hidden_size moe/shared_expert_intermediate_size
  kv_lora_rank q_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim
  mtp_num_layers mtp_loss_scaling_factor
  moe/router_enable_expert_bias moe/router_bias_update_rate moe/router_dtype
  moe/shared_expert_gate moe/layer_freq moe/router_score_function moe/norm_topk_prob
  moe/router_topk_scaling_factor moe/router_num_groups moe/router_group_topk
  moe/router_load_balancing_type moe/aux_loss_coeff moe/z_loss_coeff moe/expert_capacity_factor
  moe/token_drop_policy
parallel: data_parallel_size tensor_model_parallel_size pipeline_model_parallel_size
  virtual_pipeline_model_parallel_size sequence_parallel tp_comm_overlap context_parallel_size cp_comm_type
  hierarchical_context_parallel_sizes expert_model_parallel_size expert_tensor_parallel_size
  rank_order
pipeline: schedule schedule_file microbatch_group_size_per_vp_stage layer_split
batch: global_batch_size micro_batch_size gradient_accumulation_steps rampup_batch_size
zero_optimization: stage reduce_bucket_size allgather_bucket_size overlap_comm
  reduce_each_micro_batch stage3_prefetch_bucket_size stage3_param_persistence_threshold
precision: dtype tf32 grad_accum_dtype loss_scale initial_scale_power loss_scale_window hysteresis
  min_loss_scale
activation_checkpointing: granularity num_layers
optimizer: type params/lr params/betas params/eps params/weight_decay params/momentum param_groups
scheduler: type warmup_iters warmup_ratio decay_iters min_lr power gamma milestones
  num_cycles cycle_mult wsd_decay_iters wsd_decay_style
data: train validation split tokenizer/type tokenizer/path tokenizer/errors tokenizer/eos_token json_key append_eod cache_path sequence_length shuffle seed
  reset_attention_mask reset_position_ids eod_mask_loss packing packing_window
training: train_iters train_epochs seed eval_interval eval_iters deterministic label_smoothing
  ema_decay on_non_finite max_skipped_steps
checkpoint: load exclude_from_loading key_mapping grow_vocabulary resume save overwrite save_interval save_total_limit save_every_keep
  keep_best max_writers min_slice asynchronous staging_limit device_copies niceness io_priority mtbf_hours
  local/dir local/interval local/mtbf_hours local/replicas
runtime: device transport ranks_per_node threads_per_rank timeout_seconds machine collective_algorithm bf16_products
logging: dir overwrite log_interval tensorboard trace trace_at dump_gradients_at)";

std::vector<std::string> published_paths() {
  std::vector<std::string> paths{"/gradient_clipping"};
  std::istringstream words(kPublishedKeys);
  std::string section;
  for (std::string word; words >> word;) {
    if (word.back() == ':') {
      section = "/" + word.substr(0, word.size() - 1) + "/";
    } else {
      paths.push_back(section + word);
    }
  }
  return paths;
}

TEST(ConfigTable, HasEveryPublishedKeyAndNoOther) {
  std::vector<std::string> paths;
  for (const auto& field : config_detail::fields()) {
    EXPECT_FALSE(field.doc.empty()) << field.path;
    paths.push_back(field.path);
  }
  EXPECT_THAT(paths, ::testing::UnorderedElementsAreArray(published_paths()));
}

TEST(FilledInConfig, HasEveryKeyAndLoadsBackAsTheSame) {
  const std::vector<std::vector<std::string>> changes{
      {},
      {"training.train_iters=100", "scheduler.warmup_ratio=0.1", "scheduler.type=exponential",
       "optimizer.params.lr=0.1234567890123456789", "data.split=\"9,1\"", "data.shuffle=false"},
      {"training.train_epochs=2", "scheduler.warmup_ratio=0.1", "optimizer.type=SGD",
       "model.tie_word_embeddings=false", "training.deterministic=false",
       "logging.dump_gradients_at=[1,7]", "checkpoint.save=out"},
      {"model.architecture=llama", "model.ffn_hidden_size=96", "data.tokenizer.type=file",
       "data.tokenizer.path=t.json", "model.vocab_size=999", "model.pad_token_id=0",
       "parallel.pipeline_model_parallel_size=2", "parallel.virtual_pipeline_model_parallel_size=2",
       "zero_optimization.stage=1",
       R"(data.validation={"a": [{"path": "v", "weight": 0.1}], "b": [{"path": "w"}]})"},
      {R"(data.validation=[{"path": "v"}])", "parallel.rank_order=pp-dp-tp", "checkpoint.load=x",
       R"(checkpoint.key_mapping={"a.*": "b.*", "c": "d"})", "checkpoint.grow_vocabulary=true",
       R"(checkpoint.exclude_from_loading=["data", "optimizer"])"}};
  for (const auto& overrides : changes) {
    const LoadedConfig loaded = parse(kSmallConfig, overrides, {.cores = 5});
    const json document = json::parse(loaded.filled_in);
    for (const std::string& path : published_paths()) {
      EXPECT_TRUE(document.contains(json::json_pointer(path))) << path;
    }
    // Other circumstances change nothing, as all derived values are written.
    const LoadedConfig again = parse(
        loaded.filled_in, {}, {.ranks = loaded.config.world_size(), .cores = 64}, "elsewhere.json");
    EXPECT_EQ(again.config, loaded.config);
    EXPECT_EQ(again.filled_in, loaded.filled_in);
  }
}

TEST(CommittedConfigs, AllLoad) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "configs")) {
    if (entry.path().extension() != ".json") continue;
    ++count;
    EXPECT_NO_THROW({
      const LoadedConfig loaded = load(entry.path());
      EXPECT_EQ(parse(loaded.filled_in).config, loaded.config) << entry.path();
    }) << entry.path();
  }
  EXPECT_GE(count, 8);
  const auto layout = [](const char* name) {
    const Config config = load(kRoot / "configs" / name).config;
    return std::array{config.parallel.data_parallel_size,
                      config.parallel.tensor_model_parallel_size,
                      config.parallel.pipeline_model_parallel_size,
                      config.parallel.virtual_pipeline_model_parallel_size};
  };
  EXPECT_THAT(layout("quickstart.json"), ::testing::ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(layout("3d_interleaved.json"), ::testing::ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(layout("gpt_1t.json"), ::testing::ElementsAre(6, 8, 64, 1));
}

TEST(ConfigSchema, DescribesEveryKeyAndRefusesOthers) {
  const json schema = json::parse(config_schema(*built_in_constraints()));
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  for (const std::string& path : published_paths()) {
    const json* at = &schema;
    std::istringstream keys(path.substr(1));
    for (std::string key; std::getline(keys, key, '/');) {
      EXPECT_EQ(at->value("additionalProperties", true), false) << path;
      ASSERT_TRUE((*at)["properties"].contains(key)) << path;
      at = &(*at)["properties"][key];
    }
    EXPECT_FALSE(at->value("description", "").empty()) << path;
    EXPECT_TRUE(at->contains("type") || at->contains("anyOf")) << path;
  }
  // Keys are required where no base may have them; the model's where no weights give them.
  EXPECT_EQ(schema["allOf"][0]["then"]["required"], json({"data"}));
  EXPECT_EQ(schema["allOf"][0]["then"]["properties"]["data"]["required"], json({"train"}));
  EXPECT_EQ(schema["allOf"][1]["then"]["properties"]["model"]["required"],
            json({"num_layers", "hidden_size", "num_attention_heads"}));
  const json& model = schema["properties"]["model"];
  EXPECT_EQ(model["properties"]["architecture"]["enum"],
            json({"deepseek_v3", "gpt2", "gpt_oss", "llama", "mistral", "mixtral", "olmoe", "qwen2",
                  "qwen2_moe", "qwen3", "qwen3_moe"}));
  EXPECT_EQ(model["properties"]["num_layers"]["minimum"], 1);
  EXPECT_EQ(model["properties"]["hidden_dropout"]["anyOf"],
            json::parse(R"([{"const": 0}, {"minimum": 1.2e-38, "maximum": 0.9999999}])"));
}

TEST(ConfigReference, TheCommittedPageIsCurrent) {
  const std::string page = config_reference_markdown(*built_in_constraints());
  const fs::path current = fs::path(::testing::TempDir()) / "config.md";
  if (contents(kRoot / "docs" / "config.md") == page) return;
  std::ofstream(current) << page;
  ADD_FAILURE() << "docs/config.md differs from the field table; copy " << current << " over it";
}

}  // namespace
}  // namespace trident
