// Names from other trainers lead to their keys here.
#include "settings/peer_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "settings/fields.h"
#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

bool is_field(std::string_view path) {
  const auto& fields = config_detail::fields();
  return std::ranges::any_of(fields, [&](const auto& field) { return field.path == path; });
}

TEST(PeerKeys, EachRowLeadsToAnExistingKey) {
  EXPECT_GE(peer_keys().size(), 60);
  std::set<std::string_view> names;
  for (const PeerKey& key : peer_keys()) {
    EXPECT_TRUE(key.path.empty() ? !key.note.empty() : is_field(key.path))
        << key.name << ": " << key.path;
    EXPECT_TRUE(names.insert(key.name).second) << key.name << " is there twice";
    // A key of ours means itself in every place.
    for (const auto& field : config_detail::fields()) {
      EXPECT_NE(key.name, config_detail::leaf(field.path));
    }
    // The paths in a note name existing keys.
    for (std::size_t at = key.note.find('/'); at != std::string_view::npos;
         at = key.note.find('/', key.note.find(' ', at))) {
      EXPECT_TRUE(is_field(key.note.substr(at, key.note.find(' ', at) - at))) << key.note;
      if (key.note.find(' ', at) == std::string_view::npos) break;
    }
  }
}

// The problem of a key in the config, or by --set.
std::string refusal_of(const std::string& path, const std::string& value = "1") {
  const auto problems = problems_of({path + "=" + value});
  EXPECT_EQ(problems.size(), 1) << path;
  return problems.empty() ? "" : problems.front();
}

TEST(PeerKeys, AreLookedUpBeforeSpellingIsCompared) {
  const auto leads = [](const std::string& path, const std::string& to) {
    EXPECT_THAT(refusal_of(path), ::testing::EndsWith("unknown key; here it is " + to)) << path;
  };
  leads("max_steps", "/training/train_iters");
  leads("parallel.context_parallel_degree", "/parallel/context_parallel_size");
  leads("training.max_steps", "/training/train_iters");
  leads("training.steps", "/training/train_iters");
  leads("training.seq_len", "/data/sequence_length");
  leads("parallel.tensor_parallel_size", "/parallel/tensor_model_parallel_size");
  leads("tp", "/parallel/tensor_model_parallel_size");
  leads("batch.per_device_train_batch_size", "/batch/micro_batch_size");
  leads("train_batch_size", "/batch/global_batch_size");
  leads("optimizer.learning_rate", "/optimizer/params/lr");
  leads("scheduler.warmup_steps", "/scheduler/warmup_iters");
  leads("checkpoint.interval", "/checkpoint/save_interval");
  leads("model.num_key_value_heads", "/model/num_query_groups");
  leads("bf16", "/precision/dtype (\"bf16\")");
  leads("model.rope_scaling.type", "/model/rope_scaling/rope_type");
  leads("model.layer_types", "/model/window_layers (the layers with a window)");
  leads("--per-device-train-batch-size", "/batch/micro_batch_size");
  // A name of no other trainer is compared by spelling as before.
  EXPECT_THAT(refusal_of("training.train_iter"), HasSubstr("did you mean train_iters?"));
}

TEST(PeerKeys, SectionsOfPeersAreRefusedKeyByKey) {
  EXPECT_THAT(
      problems_of({"fp16={\"enabled\": true, \"loss_scale_window\": 5, \"fancy\": 1}",
                   "bf16={\"enabled\": false}"}),
      UnorderedElementsAre(
          "config: /bf16/enabled: unknown key; here it is /precision/dtype (\"bf16\")",
          "config: /fp16/enabled: unknown key; here it is /precision/dtype (\"fp16\")",
          "config: /fp16/loss_scale_window: unknown key; here it is /precision/loss_scale_window",
          ::testing::StartsWith("config: /fp16/fancy: unknown key; ")));
  EXPECT_THAT(problems_of({"parallelism={\"tp\": 2, \"pp\": 1}"}),
              ElementsAre(HasSubstr("/parallelism/pp: unknown key; here it is /parallel/pipeline"),
                          HasSubstr("/parallelism/tp: unknown key; here it is /parallel/tensor")));
  EXPECT_THAT(problems_of({"scheduler.params={\"warmup_num_steps\": 5}"}),
              ElementsAre("config: /scheduler/params/warmup_num_steps: unknown key; here it is "
                          "/scheduler/warmup_iters"));
  // transformers 5 has the base and the scaling in one section.
  EXPECT_THAT(problems_of({"model.rope_parameters={\"rope_type\": \"yarn\", \"factor\": 4}"}),
              ElementsAre(HasSubstr("/model/rope_parameters: unknown key; here it is "
                                    "/model/rope_scaling/rope_type (with its other keys, and "
                                    "/model/rotary_base)")));
  EXPECT_THAT(problems_of({"zero_optimization.offload_optimizer={\"device\": \"cpu\"}"}),
              ElementsAre(HasSubstr("this setting of DeepSpeed is not supported")));
}

}  // namespace
}  // namespace trident
