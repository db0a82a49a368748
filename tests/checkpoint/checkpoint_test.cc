// Checkpoints of real runs: saved in one layout and resumed in another.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/files/file.h"
#include "base/files/json.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/restore.h"
#include "engine/setup/from_config.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  Overrides overrides;
};
const std::vector<Case> kinds{
    {"fp32", {"gradient_clipping=0.5"}},
    {"Adafactor",
     {"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null"}},
    {"bf16", {"precision.dtype=bf16"}},
    // The first steps overflow: the run stops in the middle of the loss scale's window.
    {"fp16",
     {"precision.dtype=fp16", "precision.initial_scale_power=24", "precision.loss_scale_window=2",
      "precision.hysteresis=2"}}};

TEST(Checkpoint, ARunThatStopsResumesBitwiseIdentical) {
  for (const Case& c : kinds) {
    for (const Layout& layout : {Layout{1, 1, 1}, Layout{2, 1, 2}, Layout{2, 2, 1}}) {
      SCOPED_TRACE(std::string(c.name) + " " + name_of(layout));
      const TempDir uninterrupted, parts;
      train(run_config(uninterrupted.path(), c.overrides, layout));
      Messages first, second;
      train(run_config(parts.path(), c.overrides, layout), usual_device(), first.hooks(3));
      EXPECT_EQ(checkpoint_at(parts.path() + "/w").iteration, 3);
      train(run_config(parts.path(), c.overrides, layout), usual_device(), second.hooks());
      EXPECT_THAT(second.all(), HasSubstr("w/iteration-3: iteration 3 of run"));
      EXPECT_EQ(metrics_in(parts.path()), metrics_in(uninterrupted.path()));
      EXPECT_TRUE(read_file(parts / "w/model.safetensors") ==
                  read_file(uninterrupted / "w/model.safetensors"));
    }
  }
}

// The run stops in the middle of an action list that is never flushed. The micro-batches in flight
// continue with the weights with which they began. The test resumes at several iterations, also
// with fewer micro-batches than stages.
TEST(Checkpoint, AnAsynchronousRunResumesBitwiseIdentical) {
  struct Pipeline {
    const char* schedule;
    Layout layout;
    std::int64_t micro_batches;
    Overrides overrides = {};
  };
  for (const Pipeline& c :
       {Pipeline{"pipedream", {1, 1, 2}, 4}, Pipeline{"pipedream", {1, 1, 4}, 4},
        Pipeline{"pipedream", {1, 1, 4}, 2}, Pipeline{"pipedream", {1, 1, 4}, 1},
        Pipeline{"pipedream", {2, 2, 2}, 2}, Pipeline{"pipedream_2bw", {1, 1, 2}, 4},
        Pipeline{"pipedream_2bw", {2, 1, 4}, 4, {"zero_optimization.stage=1"}},
        Pipeline{"pipedream_2bw", {1, 1, 4}, 4, {"precision.dtype=bf16"}},
        Pipeline{"pipedream_2bw",
                 {1, 2, 2},
                 2,
                 {"precision.dtype=fp16", "precision.initial_scale_power=24",
                  "precision.loss_scale_window=2"}}}) {
    const std::int64_t batch = 8;
    const Overrides each =
        c.overrides +
        Overrides{
            fmt::format("pipeline.schedule={}", c.schedule),
            "gradient_clipping=0",
            "model.tie_word_embeddings=false",
            c.schedule == std::string("pipedream") ? "training.on_non_finite=stop"
                                                   : "training.on_non_finite=skip",
            "training.train_iters=7",
            fmt::format("batch.global_batch_size={}", batch),
            fmt::format("batch.micro_batch_size={}", batch / c.micro_batches / c.layout.data)};
    const TempDir uninterrupted, dir;
    train(run_config(uninterrupted.path(), each, c.layout));
    const Overrides saves = each + Overrides{"checkpoint.save_interval=1"};
    train(run_config(dir.path(), saves, c.layout));
    // Each start but the first resumes from a checkpoint of a resumed run.
    for (const int from : {1, 2, 3, 5, 6}) {
      SCOPED_TRACE(fmt::format("{} {} {} micro-batches, from {}", c.schedule, name_of(c.layout),
                               c.micro_batches, from));
      Messages messages;
      train(run_config(dir.path(), saves + Overrides{fmt::format("checkpoint.load={}", from)},
                       c.layout),
            usual_device(), messages.hooks());
      EXPECT_THAT(messages.all(), ::testing::Not(HasSubstr("trained again")));
      EXPECT_EQ(metrics_in(dir.path()), metrics_in(uninterrupted.path()));
      EXPECT_TRUE(read_file(dir / "w/model.safetensors") ==
                  read_file(uninterrupted / "w/model.safetensors"));
    }
  }
}

TEST(Checkpoint, AnAsynchronousRunInAnotherPipelineTrainsMicroBatchesInFlightAgain) {
  const TempDir dir;
  const auto config = [&](const Layout& layout, const Overrides& more = {}) {
    return run_config(dir.path(),
                      Overrides{"pipeline.schedule=pipedream", "gradient_clipping=0",
                                "model.tie_word_embeddings=false", "training.on_non_finite=stop"} +
                          more,
                      layout);
  };
  Messages first, other, longer;
  train(config({1, 1, 4}), usual_device(), first.hooks(2));
  train(config({1, 1, 2}), usual_device(), other.hooks(4));
  EXPECT_THAT(other.all(), HasSubstr("in flight are dropped, and trained again"));
  train(config({1, 1, 2}));
  // At the run's planned end no micro-batch is in flight.
  train(config({1, 1, 2}, {"training.train_iters=8"}), usual_device(), longer.hooks());
  EXPECT_EQ(longer.all().find("trained again"), std::string::npos);
  EXPECT_EQ(metrics_in(dir.path()).size(), 8u);
  // With another split of layers, a stage lacks the older weights of its new layers.
  Messages moved;
  const Overrides longest{"training.train_iters=12", "checkpoint.save_interval=10"};
  train(config({1, 1, 2}, longest));
  const Overrides split{"pipeline.layer_split=[3, 1]", "checkpoint.load=10"};
  train(config({1, 1, 2}, longest + split), usual_device(), moved.hooks());
  EXPECT_THAT(moved.all(), HasSubstr("w/iteration-10: iteration 10 of run"));
  EXPECT_THAT(moved.all(), HasSubstr("in flight are dropped, and trained again"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 12u);
}

// 2BW counts versions from the iteration at which its pipeline fills, whatever the number of
// updates before.
TEST(Checkpoint, ATwoBufferedRunFillsItsPipelineAnewAfterUpdates) {
  const TempDir dir;
  const auto config = [&](const Layout& layout, const Overrides& more) {
    return run_config(dir.path(), Overrides{"pipeline.schedule=pipedream_2bw"} + more, layout);
  };
  train(config({1, 1, 2}, {"training.train_iters=4"}));  // at its end the pipeline has drained
  Messages first, wider;
  train(config({1, 1, 2}, {"training.train_iters=9"}), usual_device(), first.hooks(6));
  train(config({2, 1, 2}, {"training.train_iters=9"}), usual_device(), wider.hooks());
  EXPECT_THAT(wider.all(), HasSubstr("w/iteration-6: iteration 6 of run"));
  const auto lines = metrics_in(dir.path());
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_LT(nlohmann::json::parse(lines[8])["loss"].get<double>(),
            nlohmann::json::parse(lines[0])["loss"].get<double>());
}

TEST(Checkpoint, IsSavedAtIntervalsAndTheOldestAreRemoved) {
  const TempDir dir;
  const auto there = [&] {
    std::vector<std::int64_t> list;
    for (const auto& one : find_checkpoints(dir / "w")) list.push_back(one.iteration);
    return list;
  };
  train(run_config(dir.path(), {"checkpoint.save_interval=1", "checkpoint.save_total_limit=2",
                                "checkpoint.save_every_keep=3"}));
  EXPECT_EQ(there(), (std::vector<std::int64_t>{3, 5, 6}));
  EXPECT_EQ(read_file(dir / "w/latest"), "iteration-6\n");
  EXPECT_EQ(read_file(dir / "w/iteration-6/model.safetensors"),
            read_file(dir / "w/model.safetensors"));
  // A run with more iterations resumes; a complete run ends at once.
  Messages longer, again;
  train(run_config(dir.path(), {"training.train_iters=7"}), usual_device(), longer.hooks());
  EXPECT_EQ(there().back(), 7);
  EXPECT_THAT(longer.all(), HasSubstr("/training/train_iters: 6 in the checkpoint, now 7"));
  train(run_config(dir.path(), {"training.train_iters=7"}), usual_device(), again.hooks());
  EXPECT_THAT(again.all(), HasSubstr("the run is complete"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 7u);
}

TEST(Checkpoint, IsSavedWhenAFileIsTouched) {
  const TempDir dir;
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  hooks.on_iteration = [&](IterationMetrics& m) {
    if (m.iteration == 2) write_file_atomic(dir / "w/save-now", "");
  };
  fs::create_directories(dir / "w");
  train(run_config(dir.path(), {}, {2, 1, 1}), usual_device(), hooks);
  const auto found = find_checkpoints(dir / "w");
  ASSERT_EQ(found.size(), 2u);  // a run with checkpoints saves one at its end, too
  EXPECT_EQ(found[0].iteration, 3);
  EXPECT_FALSE(fs::exists(dir / "w/save-now"));
}

TEST(Checkpoint, AnotherBatchSizeTakesTheNextSample) {
  const TempDir dir;
  Messages messages;
  train(run_config(dir.path()), usual_device(), messages.hooks(2));
  const Config config = run_config(dir.path());
  const std::int64_t batch = config.batch.global_batch_size;
  const Config twice = run_config(
      dir.path(),
      {"batch.global_batch_size=" + std::to_string(2 * batch), "training.train_iters=4"});
  const TrainingInputs inputs = prepare_training(twice);
  EXPECT_EQ(inputs.begin.samples, 2 * batch);
  std::vector<std::int64_t> tokens;
  TrainerHooks hooks;
  hooks.on_iteration = [&](IterationMetrics& m) { tokens.push_back(m.consumed_tokens); };
  train_local(inputs, hooks);
  const std::int64_t length = config.data.sequence_length;
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{4 * batch * length, 6 * batch * length}));
  EXPECT_EQ(checkpoint_at(dir / "w").manifest->samples, 6 * batch);
}

// Loads a checkpoint in the layout of `config`, and saves it again without a training step.
void save_again(const Config& config, const std::string& from, const std::string& to) {
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Context& context = own.stepper.context();
    const ProcessGroup files = own.stepper.topology().world.without_timeout("files");
    CheckpointReader reader(from);
    State state = own.stepper.state();
    restore_state(context, state, reader);
    own.stepper.restored();
    SaveList list(own.model, state, 1024);
    CheckpointInfo info{.manifest = reader.manifest()};
    info.manifest.tensors.clear();
    info.manifest.files.clear();
    const CheckpointPlace place{&real_files(), to, to + ".saving", config.checkpoint.max_writers,
                                64};
    EXPECT_EQ(
        write_checkpoint(context, files, list, place, info,
                         [&](const PortionSink& sink) { list.portions().each(context, sink); }),
        "");
  });
}

struct Move {
  Layout layout;
  Overrides overrides = {};
};

// Trains in the first of the layouts, then loads and saves the state in each of them and in the
// first again.
void expect_moves_unchanged(const std::string& model, const Overrides& overrides,
                            const std::vector<Move>& moves) {
  const TempDir dir;
  const auto config = [&](const Move& move, const Overrides& more) {
    // An odd vocabulary, which tensor parallelism pads.
    return seeded_config(
        model, dir / "log",
        overrides_of(move.layout) + overrides + move.overrides + more +
            Overrides{"batch.global_batch_size=12", "batch.micro_batch_size=1",
                      "model.make_vocab_size_divisible_by=1", "checkpoint.max_writers=3"});
  };
  std::string at = dir / "iteration-0";
  const Config first = config(moves[0], {});
  on_ranks(first, transport_options(first), [&](Rank& own) {
    own.model.initialise();
    for (int k = 0; k < 3; ++k) own.stepper.train(synthetic_batches(own.model, k), 1e-3);
    Context& context = own.stepper.context();
    State state = own.stepper.state();
    SaveList list(own.model, state, 0);
    CheckpointInfo info;
    for (const StateNumber& n : state.numbers) {
      std::visit([&](const auto* value) { info.manifest.numbers[n.name] = *value; }, n.value);
    }
    const ProcessGroup files = own.stepper.topology().world.without_timeout("files");
    EXPECT_EQ(
        write_checkpoint(context, files, list, {&real_files(), at, at + ".saving"}, info,
                         [&](const PortionSink& sink) { list.portions().each(context, sink); }),
        "");
  });
  const auto expected = sums_of(at);
  const auto numbers = open_checkpoint(at).numbers;
  for (std::size_t i = 1; i <= moves.size(); ++i) {
    const Move& move = moves[i % moves.size()];
    const std::string stage = "zero_optimization.stage=" + std::to_string(i % 4);
    SCOPED_TRACE(name_of(move.layout) + " " + stage);
    const std::string next = dir / ("iteration-" + std::to_string(i));
    save_again(config(move, {stage, i % 2 == 0 && move.layout.chunks == 1
                                        ? "pipeline.schedule=gpipe"
                                        : "zero_optimization.overlap_comm=true"}),
               at, next);
    ASSERT_EQ(damages(next, open_checkpoint(next)), std::vector<std::string>());
    ASSERT_EQ(sums_of(next), expected);
    ASSERT_EQ(open_checkpoint(next).numbers, numbers);
    at = next;
  }
}

TEST(Checkpoint, MovesThroughSixteenLayoutsAndBackUnchanged) {
  const std::vector<Move> moves{{{1, 1, 1}},    {{2, 1, 1}},    {{1, 2, 1}}, {{1, 1, 2}},
                                {{2, 2, 1}},    {{1, 2, 2}},    {{4, 1, 1}}, {{1, 4, 1}},
                                {{1, 1, 4}},    {{1, 1, 2, 2}}, {{2, 1, 2}}, {{2, 2, 2}},
                                {{1, 2, 2, 2}}, {{3, 1, 1}},    {{4, 2, 1}}, {{2, 1, 1}}};
  for (const char* model : {"gpt2", "llama"}) {
    for (const Case& c : kinds) {
      if (model == std::string("llama") && c.name != std::string("fp32")) continue;
      SCOPED_TRACE(std::string(model) + " " + c.name);
      expect_moves_unchanged(model, c.overrides, moves);
    }
  }
}

Overrides experts(int expert, int tensor) {
  return {"parallel.expert_model_parallel_size=" + std::to_string(expert),
          "parallel.expert_tensor_parallel_size=" + std::to_string(tensor)};
}

TEST(Checkpoint, ExpertsMoveToOtherHoldersAndBackUnchanged) {
  const Overrides model{"model.architecture=qwen3_moe",
                        R"(model.moe={"num_experts": 4, "ffn_hidden_size": 36})"};
  const std::vector<Move> moves{{{4, 1, 1}, experts(1, 1)}, {{4, 1, 1}, experts(4, 1)},
                                {{2, 1, 1}, experts(2, 1)}, {{2, 2, 1}, experts(2, 2)},
                                {{1, 4, 1}, experts(1, 2)}, {{1, 2, 2}, experts(2, 1)},
                                {{3, 2, 1}, experts(1, 6)}, {{1, 1, 1}, experts(1, 1)}};
  for (const Case& c : {kinds[0], kinds[1]}) {
    SCOPED_TRACE(c.name);
    expect_moves_unchanged("llama", model + c.overrides, moves);
  }
}

// A run that resumes in another layout computes the same values, except that sums are added in
// another order; the error in their last digits grows. Measured: 2.6e-9, 4.1e-9, and for bf16 and
// fp16 2.1e-5 and 3.2e-6.
TEST(Checkpoint, TrainingInAnotherLayoutFollowsTheRunThatNeverMoved) {
  const std::map<std::string, double> bounds{
      {"fp32", 1e-7}, {"Adafactor", 1e-7}, {"bf16", 5e-4}, {"fp16", 1e-4}};
  const std::vector<std::pair<Layout, std::string>> moves{
      {{2, 2, 1}, "2"}, {{1, 2, 2}, "1"}, {{2, 1, 2}, "3"}, {{4, 1, 1}, "3"}, {{1, 1, 1}, "0"}};
  for (const Case& c : kinds) {
    SCOPED_TRACE(c.name);
    const TempDir uninterrupted, moving;
    const Overrides each =
        c.overrides + Overrides{"training.train_iters=12", "batch.global_batch_size=12",
                                "batch.micro_batch_size=1", "model.make_vocab_size_divisible_by=1"};
    const std::vector<double> expected =
        losses_of(train(run_config(uninterrupted.path(), each, {1, 1, 1})));
    std::vector<double> losses;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto& [layout, stage] = moves[i];
      Messages messages;
      const bool last = i + 1 == moves.size();
      train(run_config(moving.path(), each + Overrides{"zero_optimization.stage=" + stage}, layout),
            usual_device(), messages.hooks(last ? 0 : static_cast<std::int64_t>(2 * (i + 1))));
    }
    for (const auto& line : read_metrics(moving.path() + "/log/metrics.jsonl")) {
      losses.push_back(line["loss"]);
    }
    ASSERT_EQ(losses.size(), expected.size());
    EXPECT_LT(largest_relative_difference(losses, expected), bounds.at(c.name));
  }
}

// Some optimizer states are replicated on several ranks, and others are sharded over them. Each is
// saved once, whatever the lists of the ranks contain.
TEST(Checkpoint, StatesOfSeveralRanksAreSavedOnce) {
  for (const char* dtype : {"bf16", "fp32"}) {
    for (const int stage : {1, 2, 3}) {
      for (const int layers : {1, 2, 3}) {
        for (const char* least : {"1048576", "1000"}) {
          SCOPED_TRACE(fmt::format("{} stage {} {} layers, least {}", dtype, stage, layers, least));
          const TempDir dir;
          Messages messages;
          train(run_config(dir.path(),
                           Overrides{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                                     "optimizer.params.eps=null", "training.train_iters=2",
                                     "checkpoint.save_interval=1",
                                     fmt::format("precision.dtype={}", dtype),
                                     fmt::format("zero_optimization.stage={}", stage),
                                     "zero_optimization.stage3_param_persistence_threshold=1",
                                     fmt::format("model.num_layers={}", layers),
                                     fmt::format("checkpoint.min_slice={}", least)},
                           {.data = 2}),
                usual_device(), messages.hooks());
          EXPECT_EQ(messages.all().find("FAILED"), std::string::npos) << messages.all();
          EXPECT_TRUE(
              damages(dir / "w/iteration-1", open_checkpoint(dir / "w/iteration-1")).empty());
        }
      }
    }
  }
}

// Expects that tests/golden/NAME is undamaged and loads in each layout, with the values whose
// checksums are in NAME.json.
void expect_golden(const std::string& name, const std::vector<Move>& moves) {
  const std::string folder = source_dir() + "/tests/golden/" + name;
  const json expected = parse_json(read_file(folder + ".json"), name + ".json");
  const Manifest manifest = open_checkpoint(folder);
  EXPECT_EQ(damages(folder, manifest), std::vector<std::string>());
  EXPECT_EQ(manifest.iteration, 2);
  EXPECT_EQ(manifest.samples, 8);
  EXPECT_EQ(std::get<std::int64_t>(manifest.numbers.at("optimizer.step")), 2);
  const TempDir dir;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto& [layout, overrides] = moves[i];
    SCOPED_TRACE(name + " in layout " + std::to_string(i));
    const Config config = load_config(folder + "/trident/config.json",
                                      overrides_of(layout) +
                                          Overrides{"logging.dir=" + dir.path(),
                                                    "batch.gradient_accumulation_steps=null",
                                                    "pipeline.layer_split=even"} +
                                          overrides,
                                      {.constraints = built_in_constraints()})
                              .config;
    const std::string next = dir / std::to_string(i);
    save_again(config, folder, next);
    for (const auto& [tensor, sum] : sums_of(next)) {
      EXPECT_EQ(fmt::format("{:016x}", sum), expected.at("tensors").at(tensor).get<std::string>())
          << tensor;
    }
    EXPECT_EQ(sums_of(next).size(), expected.at("tensors").size());
    EXPECT_EQ(open_checkpoint(next).numbers, manifest.numbers);
  }
}

// A checkpoint that commit aa0656d saved: bf16, AdamW, two data ranks and two stages. Later
// versions of the format leave it and this test as they are.
TEST(Checkpoint, OfFormat1LoadsForEver) {
  expect_golden("checkpoint_v1", {{{1, 1, 1}}, {{1, 2, 2}}});
}

// A checkpoint of format 2, which has tensors of three dimensions: a qwen3_moe of one layer, bf16,
// AdamW, two data ranks with an expert each. Its checksums were computed from the manifest by
// another program. Later versions of the format leave it as it is, too.
TEST(Checkpoint, OfFormat2LoadsForEver) {
  const std::string folder = source_dir() + "/tests/golden/checkpoint_v2";
  EXPECT_THAT(read_file(folder + "/" + manifest_name), HasSubstr("\"version\": 2,"));
  const SavedTensor up = open_checkpoint(folder).tensors.at("exp_avg/layers.0.mlp.experts.up");
  EXPECT_EQ(up.shape, Shape({2, 8, 8}));
  expect_golden(
      "checkpoint_v2",
      {{{1, 1, 1}, experts(1, 1)}, {{2, 1, 1}, experts(2, 1)}, {{2, 2, 1}, experts(1, 2)}});
}

}  // namespace
}  // namespace trident::testing
