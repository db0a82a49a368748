// Checkpoints of real runs: saved in one layout and gone on from in another, damaged in every byte,
// on disks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "training/checkpoint/checkpoint_tools.h"
#include "training/checkpoint/checkpoint_writer.h"
#include "training/checkpoint/restore.h"
#include "training/report/metrics_file.h"
#include "training/setup/from_config.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const Overrides small{"model.num_layers=1", "model.hidden_size=16", "model.num_attention_heads=2",
                      "model.num_query_groups=2"};

Config run_config(const std::string& dir, const Overrides& more = {}, const Layout& layout = {}) {
  return seeded_config("gpt2", dir + "/log",
                       overrides_of(layout) +
                           Overrides{"checkpoint.save=" + dir + "/w", "model.hidden_dropout=0.1",
                                     "scheduler.type=linear", "scheduler.warmup_iters=1",
                                     "training.train_iters=6", "training.on_non_finite=skip"} +
                           more);
}

// What a run says, by its messages, and when it stops.
struct Told {
  std::vector<std::string> messages;
  std::atomic<bool> stop{false};

  TrainerHooks hooks(std::int64_t stop_after = 0) {
    TrainerHooks hooks;
    hooks.on_message = [this](const std::string& text) { messages.push_back(text); };
    hooks.stop = &stop;
    hooks.on_iteration = [this, stop_after](IterationMetrics& m) {
      if (m.iteration + 1 == stop_after) stop = true;  // seen at the next one
    };
    return hooks;
  }
  std::string all() const {
    std::string text;
    for (const std::string& one : messages) text += one + "\n";
    return text;
  }
};

// The lines of metrics.jsonl without what times and memory say.
std::vector<std::string> metrics_in(const std::string& dir) {
  std::vector<std::string> lines;
  for (const auto& line : read_metrics(dir + "/log/metrics.jsonl")) {
    nlohmann::json kept;
    for (const char* key : {"iteration", "loss", "grad_norm", "learning_rate", "consumed_tokens",
                            "loss_scale", "skipped", "weight_version"}) {
      if (line.contains(key)) kept[key] = line[key];
    }
    lines.push_back(kept.dump());
  }
  return lines;
}

std::map<std::string, std::uint64_t> sums_of(const std::string& folder) {
  CheckpointReader reader(folder);
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    sums[name] = tensor_sum(reader, name);
  }
  return sums;
}

struct Case {
  const char* name;
  Overrides overrides;
};
const std::vector<Case> kinds{
    {"fp32", {"gradient_clipping=0.5"}},
    {"Adafactor",
     {"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null"}},
    {"bf16", {"precision.dtype=bf16"}},
    // The first steps overflow: the run stops in the middle of the scale's window.
    {"fp16",
     {"precision.dtype=fp16", "precision.initial_scale_power=24", "precision.loss_scale_window=2",
      "precision.hysteresis=2"}}};

TEST(Checkpoint, ARunThatStopsGoesOnToTheBit) {
  for (const Case& c : kinds) {
    for (const Layout& layout : {Layout{1, 1, 1}, Layout{2, 1, 2}, Layout{2, 2, 1}}) {
      SCOPED_TRACE(std::string(c.name) + " " + name_of(layout));
      const TempDir whole, parts;
      train(run_config(whole.path(), c.overrides, layout));
      Told first, second;
      train(run_config(parts.path(), c.overrides, layout), usual_device(), first.hooks(3));
      EXPECT_EQ(checkpoint_at(parts.path() + "/w").iteration, 3);
      train(run_config(parts.path(), c.overrides, layout), usual_device(), second.hooks());
      EXPECT_THAT(second.all(), HasSubstr("w/iteration-3: iteration 3 of run"));
      EXPECT_EQ(metrics_in(parts.path()), metrics_in(whole.path()));
      EXPECT_TRUE(read_file(parts / "w/model.safetensors") ==
                  read_file(whole / "w/model.safetensors"));
    }
  }
}

TEST(Checkpoint, IsSavedAtIntervalsAndTheOldestGo) {
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
  // Another number of iterations goes on; a complete run ends at once.
  Told longer, again;
  train(run_config(dir.path(), {"training.train_iters=7"}), usual_device(), longer.hooks());
  EXPECT_EQ(there().back(), 7);
  EXPECT_THAT(longer.all(), HasSubstr("/training/train_iters: 6 in the checkpoint, now 7"));
  train(run_config(dir.path(), {"training.train_iters=7"}), usual_device(), again.hooks());
  EXPECT_THAT(again.all(), HasSubstr("the run is complete"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 7u);
}

TEST(Checkpoint, IsSavedWhenAFileIsTouched) {
  const TempDir dir;
  Told told;
  TrainerHooks hooks = told.hooks();
  hooks.on_iteration = [&](IterationMetrics& m) {
    if (m.iteration == 2) write_file_atomic(dir / "w/save-now", "");
  };
  fs::create_directories(dir / "w");
  train(run_config(dir.path(), {}, {2, 1, 1}), usual_device(), hooks);
  const auto found = find_checkpoints(dir / "w");
  ASSERT_EQ(found.size(), 2u);  // and at the end, of a run that has checkpoints
  EXPECT_EQ(found[0].iteration, 3);
  EXPECT_FALSE(fs::exists(dir / "w/save-now"));
}

TEST(Checkpoint, AnotherBatchSizeTakesTheNextSample) {
  const TempDir dir;
  Told told;
  train(run_config(dir.path()), usual_device(), told.hooks(2));
  const Config config = run_config(dir.path());
  const std::int64_t batch = config.batch.global_batch_size;
  const Config twice = run_config(
      dir.path(),
      {"batch.global_batch_size=" + std::to_string(2 * batch), "training.train_iters=4"});
  const TrainingInputs inputs = prepare_training(twice);
  EXPECT_EQ(inputs.consumed_samples, 2 * batch);
  std::vector<std::int64_t> tokens;
  TrainerHooks hooks;
  hooks.on_iteration = [&](IterationMetrics& m) { tokens.push_back(m.consumed_tokens); };
  train_local(inputs, hooks);
  const std::int64_t length = config.data.sequence_length;
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{4 * batch * length, 6 * batch * length}));
  EXPECT_EQ(checkpoint_at(dir / "w").manifest->samples, 6 * batch);
}

// Loads a checkpoint in the layout of `config`, without a step, and saves it again.
void save_again(const Config& config, const std::string& from, const std::string& to) {
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Context& context = own.stepper.context();
    const ProcessGroup files = own.stepper.topology().world.patient("files");
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
        write_checkpoint(context, files, list, place, info, [&] { return list.next(context); }),
        "");
  });
}

TEST(Checkpoint, MovesThroughSixteenLayoutsAndBackUnchanged) {
  const std::vector<Layout> layouts{
      {1, 1, 1}, {2, 1, 1},    {1, 2, 1}, {1, 1, 2}, {2, 2, 1},    {1, 2, 2}, {4, 1, 1}, {1, 4, 1},
      {1, 1, 4}, {1, 1, 2, 2}, {2, 1, 2}, {2, 2, 2}, {1, 2, 2, 2}, {3, 1, 1}, {4, 2, 1}, {2, 1, 1}};
  for (const char* model : {"gpt2", "llama"}) {
    for (const Case& c : kinds) {
      if (model == std::string("llama") && c.name != std::string("fp32")) continue;
      SCOPED_TRACE(std::string(model) + " " + c.name);
      const TempDir dir;
      const auto config = [&](const Layout& layout, const Overrides& more) {
        // Odd, so that tensor ranks pad it.
        return seeded_config(
            model, dir / "log",
            overrides_of(layout) + c.overrides + more +
                Overrides{"batch.global_batch_size=12", "batch.micro_batch_size=1",
                          "model.make_vocab_size_divisible_by=1", "checkpoint.max_writers=3"});
      };
      std::string at = dir / "iteration-0";
      const Config first = config(layouts[0], {});
      on_ranks(first, transport_options(first), [&](Rank& own) {
        own.model.initialise();
        for (int k = 0; k < 3; ++k) own.stepper.train(random_batches(own.model, k), 1e-3);
        Context& context = own.stepper.context();
        State state = own.stepper.state();
        SaveList list(own.model, state, 0);
        CheckpointInfo info;
        for (const StateNumber& n : state.numbers) {
          std::visit([&](const auto* value) { info.manifest.numbers[n.name] = *value; }, n.value);
        }
        const ProcessGroup files = own.stepper.topology().world.patient("files");
        EXPECT_EQ(write_checkpoint(context, files, list, {&real_files(), at, at + ".saving"}, info,
                                   [&] { return list.next(context); }),
                  "");
      });
      const auto expected = sums_of(at);
      const auto numbers = open_checkpoint(at).numbers;
      for (std::size_t i = 1; i <= layouts.size(); ++i) {
        const Layout& layout = layouts[i % layouts.size()];
        const std::string stage = "zero_optimization.stage=" + std::to_string(i % 4);
        SCOPED_TRACE(name_of(layout) + " " + stage);
        const std::string next = dir / ("iteration-" + std::to_string(i));
        save_again(config(layout, {stage, i % 2 == 0 && layout.chunks == 1
                                              ? "pipeline.schedule=gpipe"
                                              : "zero_optimization.overlap_comm=true"}),
                   at, next);
        ASSERT_EQ(damages(next, open_checkpoint(next)), std::vector<std::string>());
        ASSERT_EQ(sums_of(next), expected);
        ASSERT_EQ(open_checkpoint(next).numbers, numbers);
        at = next;
      }
    }
  }
}

TEST(Checkpoint, EachDamagedByteIsFoundAndNamed) {
  const TempDir dir;
  train(run_config(dir.path(), small + Overrides{"checkpoint.save_interval=3"}));
  const std::string folder = dir / "w/iteration-6";
  const Manifest manifest = open_checkpoint(folder);
  EXPECT_EQ(damages(folder, manifest), std::vector<std::string>());
  const bool all = std::getenv("TRIDENT_TEST_FULL") != nullptr;
  for (const auto& [name, file] : manifest.files) {
    const std::string path = folder + "/" + name;
    const std::string text = read_file(path);
    const std::size_t step = all ? 1 : std::max<std::size_t>(1, text.size() / 50);
    for (std::size_t i = 0; i < text.size(); i += step) {
      std::string other = text;
      other[i] = static_cast<char>(~other[i]);
      write_file_atomic(path, other);
      const auto found = damages(folder, manifest);
      ASSERT_EQ(found.size(), 1u) << name << " " << i;
      EXPECT_THAT(found.front(), HasSubstr(path));
      write_file_atomic(path, text.substr(0, i));
      EXPECT_THROW(open_checkpoint(folder), RequestError) << name << " " << i;
    }
    fs::remove(path);
    EXPECT_THROW(open_checkpoint(folder), RequestError) << name;
    write_file_atomic(path, text);
  }
}

TEST(Checkpoint, WhereTheNewestIsDamagedTheOneBeforeServes) {
  for (const char* file : {"trident/manifest.json", "trident/config.json", "model.safetensors",
                           "trident/state-00001-of-00002.safetensors"}) {
    SCOPED_TRACE(file);
    const TempDir dir, whole;
    const Overrides each{"checkpoint.save_interval=2", "training.train_iters=4",
                         "checkpoint.min_slice=0"};
    const auto config = [&](const TempDir& at) { return run_config(at.path(), each, {2, 1, 1}); };
    train(config(whole));
    train(config(dir));
    const std::string path = dir / "w/iteration-4/" + file;
    std::string text = read_file(path);
    text[text.size() - 9] ^= 1;
    write_file_atomic(path, text);
    Told told;
    train(config(dir), usual_device(), told.hooks());
    EXPECT_THAT(told.all(), HasSubstr(path));
    EXPECT_THAT(told.all(), HasSubstr("going on from " + (dir / "w/iteration-2")));
    EXPECT_EQ(metrics_in(dir.path()), metrics_in(whole.path()));
    // What replaced the damaged one is whole.
    EXPECT_EQ(damages(dir / "w/iteration-4", open_checkpoint(dir / "w/iteration-4")),
              std::vector<std::string>());
    EXPECT_EQ(sums_of(dir / "w/iteration-4"), sums_of(whole / "w/iteration-4"));
  }
}

TEST(Checkpoint, OfWhichNoneIsWholeNoRunBeginsAnew) {
  const TempDir dir;
  train(run_config(dir.path(), {"checkpoint.save_interval=6"}));
  fs::remove(dir / "w/iteration-6/model.safetensors");
  EXPECT_THROW(prepare_training(run_config(dir.path())), RequestError);
  Config never = run_config(dir.path());
  never.checkpoint.resume = "never";
  EXPECT_TRUE(prepare_training(never).start.checkpoints.empty());
}

TEST(Checkpoint, OfAnotherModelIsRefusedByKey) {
  const TempDir dir;
  train(run_config(dir.path(), {"checkpoint.save_interval=6"}));
  try {
    prepare_training(run_config(dir.path(), {"model.num_layers=2"}));
    FAIL() << "no error";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("config: /model/num_layers: is 2, the checkpoint's model has 4"));
  }
}

TEST(Checkpoint, WithoutATensorOrNumberNamesIt) {
  const TempDir dir;
  const Config config = run_config(dir.path(), {"checkpoint.save_interval=6"});
  train(config);
  const std::string folder = dir / "w/iteration-6";
  const Manifest whole = open_checkpoint(folder);
  const auto message = [&](const Manifest& manifest) {
    std::string text = "no error";
    on_ranks(config, transport_options(config), [&](Rank& own) {
      CheckpointReader reader(folder, manifest);
      State state = own.stepper.state();
      try {
        restore_state(own.stepper.context(), state, reader);
      } catch (const RequestError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_EQ(message(whole), "no error");
  for (const auto& [name, tensor] : whole.tensors) {
    Manifest other = whole;
    other.tensors.erase(name);
    EXPECT_THAT(message(other), HasSubstr(name));
    other = whole;
    other.tensors[name].shape = Shape{7};
    EXPECT_THAT(message(other), HasSubstr(name));
  }
  for (const auto& [name, number] : whole.numbers) {
    if (name == "skipped") continue;  // the trainer's
    Manifest other = whole;
    other.numbers.erase(name);
    EXPECT_THAT(message(other), HasSubstr(name));
  }
}

// A disk on which the n-th operation fails.
class FailingFiles final : public FileSystem {
 public:
  explicit FailingFiles(int fails) : left_(fails) {}
  bool failed() const { return left_ < 0; }

  void make_directory(const std::string& path) override {
    act([&] { real().make_directory(path); });
  }
  std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) override {
    act([] {});
    return std::make_unique<File>(*this, real().create(path, bytes));
  }
  std::unique_ptr<OutputFile> open(const std::string& path) override {
    act([] {});
    return std::make_unique<File>(*this, real().open(path));
  }
  void rename(const std::string& from, const std::string& to) override {
    act([&] { real().rename(from, to); });
  }
  void remove(const std::string& path) override { real().remove(path); }
  void sync_directory(const std::string& path) override { real().sync_directory(path); }

 private:
  class File final : public OutputFile {
   public:
    File(FailingFiles& of, std::unique_ptr<OutputFile> file) : of_(of), file_(std::move(file)) {}
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      if (of_.left_ == 0) file_->write_at(offset, bytes.first(bytes.size() / 2));  // a short one
      of_.act([&] { file_->write_at(offset, bytes); });
    }
    void finish() override {
      of_.act([&] { file_->finish(); });
    }

   private:
    FailingFiles& of_;
    std::unique_ptr<OutputFile> file_;
  };

  static FileSystem& real() { return real_files(); }
  template <class Action>
  void act(const Action& action) {
    if (left_.fetch_sub(1) == 0) throw Error("No space left on device");
    action();
  }

  std::atomic<int> left_;
};

TEST(Checkpoint, ThatCantBeSavedLeavesTheOneBeforeAndTheRunGoesOn) {
  const TempDir whole;
  const Overrides each = small + Overrides{"checkpoint.save_interval=2", "checkpoint.min_slice=0"};
  train(run_config(whole.path(), each, {2, 1, 1}));
  int failures = 0;
  for (int fails = 0;; fails += fails < 30 ? 1 : 7) {
    SCOPED_TRACE(fails);
    const TempDir dir;
    // The first checkpoint is there.
    Told first, told;
    train(run_config(dir.path(), each, {2, 1, 1}), usual_device(), first.hooks(2));
    const auto before = sums_of(dir / "w/iteration-2");
    TrainingInputs inputs = prepare_training(run_config(
        dir.path(), each + Overrides{"training.train_iters=5", "checkpoint.save_interval=4"},
        {2, 1, 1}));
    FailingFiles files(fails);
    inputs.files = &files;
    std::string error;
    try {
      train_local(inputs, told.hooks());
    } catch (const Error& failure) {
      error = failure.what();
    }
    if (!files.failed()) break;
    ++failures;
    EXPECT_THAT(told.all() + error, HasSubstr("No space left on device"));
    EXPECT_EQ(sums_of(dir / "w/iteration-2"), before);
    for (const auto& entry : fs::recursive_directory_iterator(dir / "w")) {
      const std::string name = entry.path().filename();
      EXPECT_FALSE(name.starts_with(".trident-saving-") || name.find(".tmp-") != std::string::npos)
          << entry.path();
    }
    for (const FoundCheckpoint& one : find_checkpoints(dir / "w")) {
      ASSERT_TRUE(one.manifest) << one.problem;
      EXPECT_EQ(damages(one.path, *one.manifest), std::vector<std::string>());
    }
    EXPECT_EQ(metrics_in(dir.path()).size(), 5u);
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace trident::testing
