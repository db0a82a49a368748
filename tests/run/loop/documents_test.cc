// Documents within samples: data.reset_attention_mask, reset_position_ids and eod_mask_loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "datasets/indexed_writer.h"
#include "formats/hugging_face/hugging_face.h"
#include "run/loop/training_inputs.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident {
namespace {

using namespace testing;

constexpr std::int64_t sequence = 16;

// A pair of tokens with documents of these lengths.
std::string write_documents(const TempDir& dir, const std::vector<std::int64_t>& lengths) {
  std::mt19937 random(7);
  IndexedWriter writer(dir / "tokens", 512);
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 512);
    writer.append(tokens);
    writer.end_document();
  }
  writer.commit();
  return dir / "tokens";
}

const Overrides all_resets{"data.reset_attention_mask=true", "data.reset_position_ids=true",
                           "data.eod_mask_loss=true"};

Config config_of(const std::string& model, const TempDir& dir, const Layout& layout,
                 const Overrides& more) {
  return seeded_config(
      model, dir.path(),
      overrides_of(layout) +
          Overrides{"data.train.0.path=" + (dir / "tokens"), "data.validation=null",
                    "data.sequence_length=16", "data.shuffle=false", "gradient_clipping=0",
                    "training.train_iters=2", "runtime.threads_per_rank=1",
                    "scheduler={\"type\": \"constant\"}", "logging.dump_gradients_at=[]"} +
          more);
}

// The global batch of the first iteration, in micro-batches of one sample.
std::vector<HostMicroBatch> first_batch(const Config& config, int place = 0, int places = 1) {
  const TrainingInputs inputs = prepare_training({.config = config});
  BatchSampler sampler(inputs.datasets.train, {.global_batch_size = config.batch.global_batch_size,
                                               .micro_batch_size = 1,
                                               .place = place,
                                               .places = places});
  std::vector<HostMicroBatch> batches(static_cast<std::size_t>(sampler.micro_batches(0)));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    sampler.fill(0, static_cast<std::int64_t>(i), batches[i]);
  }
  return batches;
}

// Each document of the batches by itself, at the beginning of a sample; the rest is padding.
std::vector<HostMicroBatch> one_by_one(const std::vector<HostMicroBatch>& packed) {
  std::vector<HostMicroBatch> list;
  for (const HostMicroBatch& batch : packed) {
    for (std::size_t begin = 0; begin < sequence;) {
      std::size_t end = begin + 1;
      while (end < sequence && batch.document_begins[end] == batch.document_begins[begin]) ++end;
      HostMicroBatch& one = list.emplace_back();
      one.tokens.assign(batch.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                        batch.tokens.begin() + static_cast<std::ptrdiff_t>(end));
      one.labels.assign(batch.labels.begin() + static_cast<std::ptrdiff_t>(begin),
                        batch.labels.begin() + static_cast<std::ptrdiff_t>(end));
      one.tokens.resize(sequence, 3);
      one.labels.resize(sequence, -1);
      one.document_begins.resize(sequence, 0);
      one.sample_ids = {static_cast<std::int64_t>(list.size())};
      one.counted = static_cast<std::int64_t>(end - begin) -
                    std::count(one.labels.begin(),
                               one.labels.begin() + static_cast<std::ptrdiff_t>(end - begin), -1);
      begin = end;
    }
  }
  return list;
}

struct Result {
  double loss = 0;
  std::map<std::string, HostTensor> gradients;
};

// One step of these micro-batches.
Result result_of(const Config& config, const TempDir& dir,
                 const std::function<std::vector<HostMicroBatch>(const Rank&)>& batches) {
  Result result;
  on_ranks(config, {}, [&](Rank& rank) {
    rank.stepper.keep_gradients(true);
    const StepResult step = rank.stepper.train(batches(rank), 0);
    const ProcessGroup& world = rank.model.topology().world;
    EXPECT_EQ(save_gradients(rank.stepper, world, dir / "gradients"), "");
    if (world.rank() == 0) result.loss = step.loss;
  });
  result.gradients = read_tensors(dir / "gradients");
  return result;
}

TEST(Documents, PackedGiveTheLossAndTheGradientsOfEachByItself) {
  // Documents of one token, of exactly a sample, longer than one, and across samples.
  const std::vector<std::int64_t> lengths{1, 1, 5, 9, 16, 3, 10, 40, 1, 7, 90};
  const Overrides latent{"model.architecture=deepseek_v3",
                         "model.num_query_groups=null",
                         "model.kv_lora_rank=12",
                         "model.q_lora_rank=10",
                         "model.qk_head_dim=6",
                         "model.qk_pos_emb_head_dim=4",
                         "model.v_head_dim=5",
                         R"(model.moe={"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36,
                    "router_num_groups": 2, "router_group_topk": 2,
                    "shared_expert_intermediate_size": 36, "router_load_balancing_type": "none"})"};
  const Overrides window{"model.architecture=mistral", "model.sliding_window=5"};
  for (const auto& [model, family] : std::vector<std::pair<const char*, Overrides>>{
           {"gpt2", {}}, {"llama", {}}, {"llama", window}, {"llama", latent}}) {
    SCOPED_TRACE(family.empty() ? model : family.front());
    const TempDir dir;
    write_documents(dir, lengths);
    const Overrides packed_sizes = all_resets + family + Overrides{"batch.global_batch_size=4"};
    const Config whole = config_of(model, dir, {}, packed_sizes);
    const std::vector<HostMicroBatch> packed = first_batch(whole), apart = one_by_one(packed);
    ASSERT_EQ(apart.size(), 9U);
    const Config single = config_of(
        model, dir, {},
        all_resets + family + Overrides{"batch.global_batch_size=" + std::to_string(apart.size())});
    const Result truth = result_of(single, dir, [&](const Rank&) { return apart; });
    for (const Layout& layout : {Layout{}, Layout{2, 1, 1}, Layout{1, 2, 1}, Layout{1, 1, 2},
                                 Layout{1, 1, 2, 2}, Layout{2, 2, 2}}) {
      SCOPED_TRACE(name_of(layout));
      Overrides more = packed_sizes;
      if (layout.tensor > 1) more.push_back("parallel.sequence_parallel=true");
      const Config config = config_of(model, dir, layout, more);
      const Result result = result_of(config, dir, [&](const Rank& rank) {
        return first_batch(config, rank.model.topology().place(Group::batch), layout.data);
      });
      EXPECT_NEAR(result.loss / truth.loss, 1, 1e-6);
      EXPECT_LT(largest_relative_distance(result.gradients, truth.gradients), 2e-6);
    }
    // Without borders the loss is another one.
    const Config plain = config_of(model, dir, {}, family + Overrides{"batch.global_batch_size=4"});
    EXPECT_GT(std::abs(result_of(plain, dir, [&](const Rank&) { return first_batch(plain); }).loss -
                       truth.loss),
              1e-4);
  }
}

// The same of rows that best_fit packs, with padding.
TEST(Documents, PackedIntoRowsGiveTheLossAndTheGradientsOfEachByItself) {
  const TempDir dir;
  write_documents(dir, {5, 9, 16, 3, 13, 2, 40, 1, 7, 11});
  const Overrides sizes =
      all_resets + Overrides{"data.packing=best_fit", "batch.global_batch_size=4"};
  const Config whole = config_of("llama", dir, {}, sizes);
  const std::vector<HostMicroBatch> apart = one_by_one(first_batch(whole));
  const Config single =
      config_of("llama", dir, {},
                all_resets + Overrides{"batch.global_batch_size=" + std::to_string(apart.size())});
  const Result truth = result_of(single, dir, [&](const Rank&) { return apart; });
  for (const Layout& layout : {Layout{}, Layout{2, 1, 1}, Layout{1, 1, 2}}) {
    SCOPED_TRACE(name_of(layout));
    const Config config = config_of("llama", dir, layout, sizes);
    const Result result = result_of(config, dir, [&](const Rank& rank) {
      return first_batch(config, rank.model.topology().place(Group::batch), layout.data);
    });
    EXPECT_NEAR(result.loss / truth.loss, 1, 1e-6);
    EXPECT_LT(largest_relative_distance(result.gradients, truth.gradients), 2e-6);
  }
}

TEST(Documents, ARunOfPackedRowsResumesWithTheSameBits) {
  const TempDir dir;
  write_documents(dir, {5, 9, 16, 3, 13, 2, 40, 1, 7, 11, 8, 8, 15, 90, 4});
  const auto run = [&](const std::string& name, const Overrides& more) {
    const Config config = config_of(
        "gpt2", dir, {1, 1, 2},
        all_resets +
            Overrides{"data.packing=best_fit", "data.packing_window=6", "data.shuffle=true",
                      "batch.global_batch_size=4", "training.train_iters=6",
                      "checkpoint.save_interval=3", "logging.dir=" + (dir / name),
                      "checkpoint.save=" + (dir / "w-") + name} +
            more);
    return losses_of(train(config));
  };
  const auto uninterrupted = run("whole", {});
  const auto rest = run("rest", {"checkpoint.load=" + (dir / "w-whole/iteration-3")});
  EXPECT_EQ(rest, std::vector(uninterrupted.begin() + 3, uninterrupted.end()));
  EXPECT_EQ(slurp(dir / "w-whole/model.safetensors"), slurp(dir / "w-rest/model.safetensors"));
}

TEST(Documents, OneDocumentInEachSampleChangesNoBit) {
  for (const char* model : {"gpt2", "llama"}) {
    SCOPED_TRACE(model);
    const TempDir dir;
    write_documents(dir, {200, 20});
    const Overrides sizes{"batch.global_batch_size=4", "batch.micro_batch_size=2",
                          "model.hidden_dropout=0.1", "model.attention_dropout=0.1"};
    const auto bits = [&](const Overrides& more) {
      const TempDir out;
      const Config config = config_of(
          model, dir, {}, sizes + Overrides{"checkpoint.save=" + (out / "weights")} + more);
      const auto losses = losses_of(train(config));
      return std::pair(losses, slurp(out / "weights/model.safetensors"));
    };
    const auto plain = bits({}), separated = bits(all_resets);
    EXPECT_EQ(plain.first, separated.first);
    EXPECT_TRUE(plain.second == separated.second);
  }
}

TEST(Documents, NoBitDependsOnThePipelineTheScheduleOrZero) {
  const TempDir dir;
  write_documents(dir, {1, 1, 5, 9, 16, 3, 13, 40, 1, 7, 90, 11, 300});
  const auto bits = [&](const Layout& layout, const Overrides& more) {
    const TempDir out;
    const Config config = config_of(
        "llama", dir, layout,
        all_resets +
            Overrides{"batch.global_batch_size=8", "batch.micro_batch_size=1",
                      "model.attention_dropout=0.1", "checkpoint.save=" + (out / "weights")} +
            more);
    const auto losses = losses_of(train(config));
    return std::pair(losses, slurp(out / "weights/model.safetensors"));
  };
  const auto plain = bits({2, 1, 1}, {});
  for (const auto& [layout, more] : std::vector<std::pair<Layout, Overrides>>{
           {{2, 1, 1}, {"zero_optimization.stage=1"}},
           {{2, 1, 2}, {"zero_optimization.stage=1"}},
           {{2, 1, 2}, {"pipeline.schedule=1f1b"}},
           {{2, 1, 2, 2}, {"pipeline.schedule=interleaved_1f1b"}},
           {{2, 1, 2}, {"pipeline.schedule=zb_h1"}},
           {{2, 1, 4}, {"pipeline.schedule=gpipe", "activation_checkpointing.granularity=full"}}}) {
    SCOPED_TRACE(name_of(layout));
    const auto found = bits(layout, more);
    EXPECT_EQ(found.first, plain.first);
    EXPECT_TRUE(found.second == plain.second);
  }
}

// Documents of one token, whose label lies in the next one, fill the second iteration. Under zb_h2
// the first one's update is optimistic then.
TEST(Documents, ABatchWithoutALabelThatCountsIsSkipped) {
  for (const char* schedule : {"1f1b", "zb_h2"}) {
    SCOPED_TRACE(schedule);
    const TempDir dir;
    std::vector<std::int64_t> lengths(65, 1);
    lengths.front() = 64;
    lengths.push_back(200);
    write_documents(dir, lengths);
    const Overrides sizes{"data.eod_mask_loss=true", "batch.global_batch_size=4",
                          "training.train_iters=4", std::string("pipeline.schedule=") + schedule};
    const Config config = config_of("gpt2", dir, {1, 1, 2}, sizes);
    std::vector<std::string> messages;
    TrainerHooks hooks;
    hooks.on_message = [&](const std::string& text) { messages.push_back(text); };
    const TrainingSummary summary = train(config, usual_device(), hooks);
    ASSERT_EQ(summary.history.size(), 4U);
    EXPECT_EQ(summary.history[0].counted_tokens, 63);
    EXPECT_EQ(summary.history[1].counted_tokens, 0);
    EXPECT_EQ(summary.history[3].counted_tokens, 64);  // within one document
    for (const std::size_t k : {0, 1, 2, 3}) {
      EXPECT_EQ(summary.history[k].skipped, k == 1) << k;
      EXPECT_EQ(std::isfinite(summary.history[k].loss), k != 1) << k;
    }
    EXPECT_THAT(messages, ::testing::Contains(::testing::HasSubstr(
                              "iteration 2: no label of samples 4 to 7 counts; step skipped")));
    // As many in a row as a run may skip end it.
    const Config few =
        config_of("gpt2", dir, {1, 1, 2}, sizes + Overrides{"training.max_skipped_steps=1"});
    EXPECT_THROW(train(few), Error);
  }
}

// The mean over the labels that count in all batches, not the mean of the batches' means.
TEST(Documents, AValidationLossIsTheMeanOverTheLabelsThatCount) {
  const TempDir dir;
  std::vector<std::int64_t> lengths(40, 1);
  lengths.insert(lengths.end(), {9, 3, 60, 200});
  write_documents(dir, lengths);
  const auto loss_of = [&](int batch, int batches) {
    const Config config =
        config_of("gpt2", dir, {},
                  {"data.eod_mask_loss=true", "batch.global_batch_size=" + std::to_string(batch),
                   "batch.micro_batch_size=1", "training.eval_iters=" + std::to_string(batches),
                   "training.eval_interval=0", "training.train_iters=1", "optimizer.params.lr=0",
                   R"(data.validation=[{"path": ")" + (dir / "tokens") + R"("}])"});
    return train(config).history.back().validation_loss.front().second;
  };
  EXPECT_NEAR(loss_of(1, 6) / loss_of(6, 1), 1, 1e-6);
}

// Balancing losses are means over all tokens, and their part of the gradients is the same whichever
// labels count.
TEST(Documents, LabelsThatDoNotCountChangeNoBalancingLoss) {
  const TempDir dir;
  write_documents(dir, std::vector<std::int64_t>(40, 2));
  // The gradients with the losses less those without, and the losses.
  const auto of_balancing = [&](const Overrides& more) {
    const auto result = [&](const char* factor) {
      const Config config = config_of(
          "llama", dir, {},
          more + Overrides{"model.architecture=qwen3_moe", "batch.global_batch_size=2",
                           std::string("model.moe={\"num_experts\": 4, \"router_topk\": 2, "
                                       "\"ffn_hidden_size\": 36, \"z_loss_coeff\": ") +
                               factor + ", \"aux_loss_coeff\": " + factor + "}"});
      std::map<std::string, double> losses;
      on_ranks(config, {}, [&](Rank& rank) {
        rank.stepper.keep_gradients(true);
        const StepResult step = rank.stepper.train(first_batch(config), 0);
        losses = step.statistics.auxiliary_losses;
        EXPECT_EQ(save_gradients(rank.stepper, rank.model.topology().world, dir / "g"), "");
      });
      return std::pair(read_tensors(dir / "g"), losses);
    };
    auto [gradients, losses] = result("0.5");
    const auto plain = result("0").first;
    for (auto& [name, tensor] : gradients) {
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        tensor.values[i] -= plain.at(name).values[i];
      }
    }
    std::erase_if(gradients,
                  [](const auto& one) { return !one.first.ends_with("mlp.gate.weight"); });
    EXPECT_FALSE(gradients.empty());
    return std::pair(gradients, losses);
  };
  const auto all = of_balancing({}), some = of_balancing({"data.eod_mask_loss=true"});
  EXPECT_EQ(all.second, some.second);
  EXPECT_LT(largest_relative_distance(some.first, all.first), 1e-4);
}

TEST(Documents, AreRefusedWhereASampleHasToBeOne) {
  const TempDir dir;
  write_documents(dir, {40, 60});
  const auto problem = [&](const Overrides& overrides, const std::string& text = "") {
    try {
      prepare_training({.config = config_of("gpt2", dir, {1, 1, 2}, overrides)});
      return std::string("accepted");
    } catch (const RequestError& error) {
      return std::string(error.what()) + text;
    }
  };
  EXPECT_THAT(problem({"data.eod_mask_loss=true", "pipeline.schedule=pipedream_2bw"}),
              ::testing::HasSubstr("/data/eod_mask_loss: true needs the number of labels"));
  EXPECT_EQ(problem({"data.reset_attention_mask=true", "pipeline.schedule=pipedream_2bw"}),
            "accepted");
  EXPECT_THAT(problem({"data.packing=best_fit", "pipeline.schedule=pipedream"}),
              ::testing::HasSubstr("/data/packing: \"best_fit\" needs the number of labels"));
  EXPECT_THAT(problem({"data.packing_window=5"}),
              ::testing::HasSubstr("/data/packing_window: does nothing"));
  const TempDir one;
  write_documents(one, {100});
  EXPECT_THAT(problem({"data.reset_position_ids=true", "data.train.0.path=" + (one / "tokens")}),
              ::testing::HasSubstr("is one document, and no token ends documents"));
}

}  // namespace
}  // namespace trident
