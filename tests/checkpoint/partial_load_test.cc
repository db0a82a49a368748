// Runs that load a part of another run's checkpoint, or load it under other names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "run/loop/training_inputs.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"
#include "tests/checkpoint/node_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string quoted_list(const std::vector<std::string>& words) {
  return json(words).dump();
}

Overrides excluding(const std::vector<std::string>& parts) {
  return {"checkpoint.exclude_from_loading=" + quoted_list(parts)};
}

std::int64_t integer_of(const Manifest& manifest, const std::string& name) {
  return std::get<std::int64_t>(manifest.numbers.at(name));
}

// A run of 6 iterations with checkpoints at 3 and 6, and other runs that begin with the one at 3.
class PartialLoad : public ::testing::Test {
 protected:
  static Config config(const TempDir& dir, const Overrides& more = {}, const Layout& layout = {}) {
    return run_config(
        dir.path(),
        small +
            Overrides{"checkpoint.save_interval=3", "training.deterministic=true", on_this_device} +
            more,
        layout);
  }
  std::string from() const { return first_ / "w/iteration-3"; }

  void SetUp() override { train(config(first_)); }

  // Runs a training that begins with this checkpoint, and returns its messages.
  std::string begin(const TempDir& dir, const Overrides& more, const Layout& layout = {}) {
    Messages messages;
    train(config(dir, Overrides{"checkpoint.load=" + from()} + more, layout), usual_device(),
          messages.hooks());
    return messages.all();
  }

  const TempDir first_;
};

TEST_F(PartialLoad, TheWeightsAloneBeginARunAsAHuggingFaceDirectoryDoes) {
  const TempDir directory, alone;
  // The same weights without the files that make the folder a checkpoint.
  fs::create_directory(directory / "hf");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy(from() + "/" + name, directory / "hf");
  }
  train(config(directory, {"checkpoint.load=" + (directory / "hf")}));
  const std::string messages = begin(alone, excluding({"optimizer", "iteration", "data"}));
  EXPECT_THAT(messages, HasSubstr("beginning with " + from()));
  EXPECT_THAT(
      messages,
      HasSubstr("left out: the optimizer's state, the iteration and the place in the data"));
  EXPECT_EQ(metrics_in(alone.path()), metrics_in(directory.path()));
  EXPECT_EQ(sums_of(alone / "w/iteration-6"), sums_of(directory / "w/iteration-6"));
}

TEST_F(PartialLoad, WithoutTheOptimizerTheRunResumesWhereItWas) {
  const TempDir dir;
  EXPECT_THAT(begin(dir, excluding({"optimizer"})),
              HasSubstr("left out: the optimizer's state; read in"));
  const Manifest manifest = open_checkpoint(dir / "w/iteration-6");
  EXPECT_EQ(integer_of(manifest, "optimizer.step"), 3);
  EXPECT_EQ(manifest.samples, open_checkpoint(first_ / "w/iteration-6").samples);
  const auto mine = metrics_in(dir.path()), theirs = metrics_in(first_.path());
  ASSERT_EQ(mine.size(), 3u);
  EXPECT_EQ(json::parse(mine[0])["loss"], json::parse(theirs[3])["loss"]);
  EXPECT_EQ(json::parse(mine[0])["learning_rate"], json::parse(theirs[3])["learning_rate"]);
  EXPECT_NE(json::parse(mine[1])["loss"], json::parse(theirs[4])["loss"]);
}

TEST_F(PartialLoad, WithoutThePlaceInTheDataSamplesBeginAnew) {
  const TempDir dir, both;
  begin(dir, excluding({"data"}));
  const Manifest manifest = open_checkpoint(dir / "w/iteration-6");
  const std::int64_t batch = config(dir).batch.global_batch_size;
  EXPECT_EQ(integer_of(manifest, "optimizer.step"), 6);
  EXPECT_EQ(manifest.samples, 3 * batch);
  // Without "data" and "iteration", the first batch is that of a new run.
  begin(both, excluding({"data", "iteration"}) +
                  Overrides{"optimizer.params.lr=0", "scheduler.min_lr=0"});
  const TempDir fresh;
  train(config(
      fresh, Overrides{"optimizer.params.lr=0", "scheduler.min_lr=0", "checkpoint.load=" + from()} +
                 excluding({"optimizer", "iteration", "data"})));
  EXPECT_EQ(json::parse(metrics_in(both.path())[0])["loss"],
            json::parse(metrics_in(fresh.path())[0])["loss"]);
  EXPECT_EQ(open_checkpoint(both / "w/iteration-3").iteration, 3);
  EXPECT_EQ(open_checkpoint(both / "w/iteration-3").samples, 3 * batch);
}

TEST_F(PartialLoad, WithoutTheIterationTheDataContinues) {
  const TempDir dir;
  begin(dir, excluding({"iteration"}));
  const std::int64_t batch = config(dir).batch.global_batch_size;
  const Manifest manifest = open_checkpoint(dir / "w/iteration-6");
  EXPECT_EQ(manifest.samples, 9 * batch);
  EXPECT_EQ(integer_of(manifest, "optimizer.step"), 9);
  EXPECT_EQ(metrics_in(dir.path()).size(), 6u);
}

// checkpoint.load's options apply to another run's checkpoint, and not to the run's own ones.
TEST_F(PartialLoad, TheRunResumesWithTheFullStateOfItsOwnCheckpoints) {
  const TempDir once, twice;
  const Overrides parts = excluding({"optimizer", "iteration"});
  begin(once, parts);
  const std::string asked = "checkpoint.load=" + from();
  Messages before, messages;
  train(config(twice, Overrides{asked} + parts), usual_device(), before.hooks(3));
  train(config(twice, Overrides{asked} + parts), usual_device(), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("resuming from " + (twice / "w")));
  EXPECT_EQ(metrics_in(twice.path()), metrics_in(once.path()));
  EXPECT_EQ(sums_of(twice / "w/iteration-6"), sums_of(once / "w/iteration-6"));
}

// Renames tensors in a checkpoint, as if the model's code had renamed them since.
void rename_in(const std::string& folder, const std::string& part, const std::string& with) {
  const std::string path = folder + "/trident/manifest.json";
  Manifest manifest = parse_manifest(read_file(path), path);
  std::map<std::string, SavedTensor> tensors;
  for (const auto& [name, tensor] : manifest.tensors) {
    std::string other = name;
    if (const auto at = name.find(part); at != std::string::npos) {
      other.replace(at, part.size(), with);
    }
    tensors[other] = tensor;
  }
  manifest.tensors = tensors;
  write_file_atomic(path, manifest_text(manifest));
}

TEST_F(PartialLoad, TensorsOfOtherNamesAreMapped) {
  const TempDir dir, missing, wrong;
  rename_in(from(), "layers.0.mlp.", "blocks.0.ffn.");
  EXPECT_THROW(begin(missing, {}), RequestError);
  const std::string messages =
      begin(dir, {R"(checkpoint.key_mapping={"blocks.*.ffn.up.weight": "layers.*.mlp.up.weight",
                     "blocks.0.ffn.*": "layers.0.mlp.*"})"});
  EXPECT_THAT(messages,
              HasSubstr("tensors: blocks.0.ffn.* in the checkpoint is layers.0.mlp.* here"));
  EXPECT_EQ(sums_of(dir / "w/iteration-6"), sums_of(first_ / "w/iteration-6"));
  const auto problem = [&](const char* mapping) -> std::string {
    try {
      begin(wrong, {std::string("checkpoint.key_mapping=") + mapping});
    } catch (const RequestError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(problem(R"({"blocks.1.*": "layers.1.*"})"),
              HasSubstr("config: /checkpoint/key_mapping/blocks.1.*: it applies to no tensor"));
  EXPECT_THAT(problem(R"({"blocks.0.ffn.up.*": "layers.0.mlp.up.*", "blocks.0.ffn.up.weight":
                          "layers.0.mlp.up.weight", "blocks.0.ffn.up.bias": "layers.0.mlp.up.bias"})"),
              HasSubstr("it applies to no tensor"));
  EXPECT_THAT(problem(R"({"*.0.ffn.up.weight": "*.0.a", "blocks.0.ffn.up.*": "b*"})"),
              HasSubstr("matches \"blocks.0.ffn.up.weight\""));
  // The pattern with the most text applies, so the other two don't conflict.
  EXPECT_THAT(problem(R"({"*.0.ffn.up.weight": "*.0.a", "blocks.0.ffn.up.*": "layers.0.mlp.up.*",
                          "blocks.0.ffn.up.weight": "layers.0.mlp.up.weight"})"),
              ::testing::AllOf(HasSubstr("/checkpoint/key_mapping/*.0.ffn.up.weight: it applies"),
                               Not(HasSubstr("equally well"))));
  EXPECT_THAT(problem(R"({"blocks.*": "layers"})"), HasSubstr("needs one * in both names"));
  EXPECT_THAT(problem(R"({"blocks.0.ffn.*": "same"})"), HasSubstr("needs one * in both names"));
  EXPECT_THAT(problem(R"({"blocks.0.ffn.up.weight": "embedding.weight"})"),
              HasSubstr("would both be \"embedding.weight\""));
}

TEST_F(PartialLoad, TensorsOfAHuggingFaceDirectoryAreMapped) {
  const TempDir dir, source;
  fs::create_directory(source / "hf");
  fs::copy(from() + "/config.json", source / "hf");
  std::string weights = read_file(from() + "/model.safetensors");
  for (std::size_t at = 0; (at = weights.find("transformer.h.", at)) != std::string::npos; ++at) {
    weights.replace(at, 14, "decoder0000.z.");
  }
  write_file_atomic(source / "hf/model.safetensors", weights);
  const Overrides load{"checkpoint.load=" + (source / "hf")};
  EXPECT_THROW(train(config(dir, load)), RequestError);
  const TempDir unmapped;
  begin(unmapped, excluding({"optimizer", "iteration", "data"}));
  train(config(
      dir, load + Overrides{R"(checkpoint.key_mapping={"decoder0000.z.*": "transformer.h.*"})"}));
  EXPECT_EQ(metrics_in(dir.path()), metrics_in(unmapped.path()));
}

// The rows of a weight or of an optimizer state, as a checkpoint stores them.
std::vector<float> table(const std::string& folder, const std::string& name) {
  CheckpointReader reader(folder);
  const SavedTensor& tensor = *reader.find(name);
  const TensorSlice all{0, 0, tensor.shape.dim(0), tensor.shape.dim(1)};
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  reader.read(name, all, all.columns, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(PartialLoad, AVocabularyThatGrewKeepsItsRows) {
  const Config was = config(first_);
  const std::int64_t entries = was.model.vocab_size, hidden = was.model.hidden_size;
  const std::string more = "model.vocab_size=" + std::to_string(entries + 13);
  const Overrides unmoved{"optimizer.params.lr=0", "scheduler.min_lr=0",
                          "optimizer.params.weight_decay=0", "scheduler.type=constant"};
  const Overrides still = unmoved + Overrides{more, "checkpoint.grow_vocabulary=true"};
  const auto size = static_cast<std::size_t>(entries * hidden);
  const auto theirs = table(from(), "weight/embedding.weight");
  ASSERT_EQ(theirs.size(), size);
  const TempDir same;
  begin(same, unmoved + Overrides{"training.train_iters=4"});
  const auto moments = table(same / "w/iteration-4", "exp_avg/embedding.weight");
  const TempDir fresh;
  train(config(fresh,
               {"optimizer.params.lr=0", "scheduler.min_lr=0", "optimizer.params.weight_decay=0",
                "scheduler.type=constant", more, "training.train_iters=3"}));
  const auto initial = table(fresh / "w/iteration-3", "weight/embedding.weight");

  const TempDir refused;
  EXPECT_THROW(begin(refused, {more}), RequestError);
  for (const Layout& layout : {Layout{}, Layout{.data = 2, .tensor = 2}}) {
    const TempDir dir, weights;
    const Overrides zero{"zero_optimization.stage=" + std::to_string(layout.data - 1)};
    // The run saves before any training step: the checkpoint contains the loaded values.
    const std::string messages =
        begin(dir, still + zero + Overrides{"training.train_iters=4"}, layout);
    EXPECT_THAT(messages, HasSubstr("/model/vocab_size: " + std::to_string(entries) +
                                    " in the checkpoint, now " + std::to_string(entries + 13)));
    const auto ours = table(dir / "w/iteration-4", "weight/embedding.weight");
    ASSERT_EQ(ours.size(), size + static_cast<std::size_t>(13 * hidden));
    EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), ours.begin()));
    EXPECT_TRUE(std::equal(ours.begin() + static_cast<std::ptrdiff_t>(size), ours.end(),
                           initial.begin() + static_cast<std::ptrdiff_t>(size)));
    // The moments of the rows that existed before are one step further, close to a run without the
    // new rows.
    const auto kept = table(dir / "w/iteration-4", "exp_avg/embedding.weight");
    double distance = 0, norm = 0;
    for (std::size_t i = 0; i < size; ++i) {
      distance += std::pow(kept[i] - moments[i], 2);
      norm += std::pow(moments[i], 2);
    }
    EXPECT_LT(distance, 0.01 * norm);

    // The same weights come from a Hugging Face directory.
    fs::create_directory(weights / "hf");
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy(from() + "/" + name, weights / "hf");
    }
    train(config(
        weights,
        still + zero + Overrides{"training.train_iters=3", "checkpoint.load=" + (weights / "hf")},
        layout));
    EXPECT_EQ(table(weights / "w/iteration-3", "weight/embedding.weight"), ours);
  }
}

TEST_F(PartialLoad, AnotherOptimizerNamesMissingAndUnusedStates) {
  const TempDir dir, adam;
  const Overrides sgd{"optimizer.type=SGD", "optimizer.params.betas=null",
                      "optimizer.params.eps=null"};
  EXPECT_THAT(begin(dir, sgd),
              HasSubstr("not loaded from the checkpoint, as this run lacks these states: "
                        "exp_avg, exp_avg_sq\n"));
  Messages messages;
  const Overrides from_sgd{"checkpoint.load=" + (dir / "w/iteration-6"), "training.train_iters=9"};
  try {
    train(config(adam, from_sgd));
    FAIL() << "SGD's checkpoint has no moments";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("exclude_from_loading: [\"optimizer\"]"));
  }
  train(config(adam, from_sgd + excluding({"optimizer"})));
  EXPECT_EQ(integer_of(open_checkpoint(adam / "w/iteration-9"), "optimizer.step"), 3);
}

TEST(PartialLoadOfPrecisions, ALossScaleIsOfFp16WeightsAlone) {
  const TempDir bf16, fp16;
  train(run_config(bf16.path(),
                   small + Overrides{"precision.dtype=bf16", "checkpoint.save_interval=3"}));
  train(run_config(fp16.path(),
                   small + Overrides{"precision.dtype=fp16", "precision.initial_scale_power=8",
                                     "checkpoint.save_interval=6",
                                     "checkpoint.load=" + (bf16 / "w/iteration-3")}));
  const auto lines = metrics_in(fp16.path());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(json::parse(lines[0])["loss_scale"], 256);
}

// A run that restarts before its own first checkpoint begins at its configured starting point
// again.
TEST_F(PartialLoad, ARunThatDiesBeforeItsFirstCheckpointBeginsThereAgain) {
  const TempDir dir;
  const Overrides load{"checkpoint.load=" + from()};
  TrainerHooks hooks;
  hooks.on_iteration = [](IterationMetrics& m) {
    if (m.iteration == 4) throw std::runtime_error("killed");
  };
  EXPECT_THROW(run_to_end(config(dir, load), hooks), std::runtime_error);
  run_to_end(config(dir, load));
  EXPECT_EQ(metrics_in(dir.path()).size(), 3u);
  EXPECT_EQ(sums_of(dir / "w/iteration-6"), sums_of(first_ / "w/iteration-6"));
}

TEST_F(PartialLoad, FewerVocabularyRowsThanTheConfigOfTheWeightsAreRefused) {
  const TempDir dir, source;
  fs::create_directory(source / "hf");
  fs::copy(from() + "/model.safetensors", source / "hf");
  json theirs = json::parse(read_file(from() + "/config.json"));
  theirs["vocab_size"] = config(dir).model.vocab_size + 1;  // one more than in the file
  write_file_atomic(source / "hf/config.json", theirs.dump());
  const std::string more = "model.vocab_size=" + std::to_string(config(dir).model.vocab_size + 13);
  try {
    train(config(dir,
                 {"checkpoint.load=" + (source / "hf"), more, "checkpoint.grow_vocabulary=true"}));
    FAIL() << "rows are missing";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rows, config.json says"));
  }
}

TEST(PartialLoadRequests, AreAboutAPathAlone) {
  const TempDir dir;
  for (const char* load : {"checkpoint.load=auto", "checkpoint.load=3", "checkpoint.load=null"}) {
    try {
      run_config(dir.path(), small + Overrides{load} + excluding({"data"}));
      FAIL() << load;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr("/checkpoint/exclude_from_loading: applies to the path "
                                          "in checkpoint.load"));
    }
  }
  EXPECT_THROW(
      run_config(dir.path(), small + Overrides{"checkpoint.load=x"} + excluding({"data", "data"})),
      RequestError);
  EXPECT_THROW(
      run_config(dir.path(), small + Overrides{"checkpoint.load=x"} + excluding({"weights"})),
      RequestError);
}

}  // namespace
}  // namespace trident::testing
