// Short runs that save checkpoints, and functions that read these checkpoints.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/crc64.h"
#include "base/files/file.h"
#include "base/files/file_system.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_tools.h"
#include "checkpoint/manifest.h"
#include "report/metrics_file.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {

inline const Overrides small{"model.num_layers=1", "model.hidden_size=16",
                             "model.num_attention_heads=2", "model.num_query_groups=2"};

inline Config run_config(const std::string& dir, const Overrides& more = {},
                         const Layout& layout = {}) {
  return seeded_config("gpt2", dir + "/log",
                       overrides_of(layout) +
                           Overrides{"checkpoint.save=" + dir + "/w", "model.hidden_dropout=0.1",
                                     "scheduler.type=linear", "scheduler.warmup_iters=1",
                                     "training.train_iters=6", "training.on_non_finite=skip"} +
                           more);
}

inline Config every_second(const TempDir& dir, const Overrides& more = {}) {
  return run_config(dir.path(), small + Overrides{"checkpoint.save_interval=2"} + more);
}

// Runs the config through a TrainingJob, which claims the run's folders.
struct Job {
  explicit Job(const Config& config) : job(prepare_job(LoadedConfig{.config = config}, launch)) {}
  void run(const TrainerHooks& hooks = {}) { run_job(job, {.trainer = hooks}); }

  const Launch launch;
  const TrainingJob job;
};

inline std::vector<std::int64_t> iterations_in(const std::string& save) {
  std::vector<std::int64_t> list;
  for (const FoundCheckpoint& one : find_checkpoints(save)) list.push_back(one.iteration);
  return list;
}

inline void damage(const std::string& path) {
  std::string text = read_file(path);
  text[text.size() / 2] ^= 1;
  write_file_atomic(path, text);
}

// Changes a checkpoint's manifest, and gives it the root and the sums that belong to its new text.
inline void change_manifest(const std::string& folder,
                            const std::function<void(nlohmann::json&)>& change) {
  const std::string path = folder + "/" + manifest_name;
  auto document = nlohmann::json::parse(read_file(path));
  document.erase("root");
  change(document);
  std::string text = document.dump();
  text.pop_back();
  write_file_atomic(path, text + ",\n\"root\": \"" + hex64(crc64(text)) + "\"}\n");
}

// Collects the messages of a run, and can stop it.
struct Messages {
  std::vector<std::string> messages;
  std::atomic<bool> stop{false};

  TrainerHooks hooks(std::int64_t stop_after = 0) {
    TrainerHooks hooks;
    hooks.on_message = [this](const std::string& text) { messages.push_back(text); };
    hooks.stop = &stop;
    hooks.on_iteration = [this, stop_after](IterationMetrics& m) {
      if (m.iteration + 1 == stop_after) stop = true;  // the trainer sees it at the next iteration
    };
    return hooks;
  }
  std::string all() const {
    std::string text;
    for (const std::string& one : messages) text += one + "\n";
    return text;
  }
};

// The lines of metrics.jsonl without the keys for times and memory.
inline std::vector<std::string> metrics_in(const std::string& dir) {
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

inline std::map<std::string, std::uint64_t> sums_of(const std::string& folder) {
  CheckpointReader reader(folder);
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    sums[name] = tensor_sum(reader, name);
  }
  return sums;
}

// The real file system, with a call to `before` before each operation except remove and
// sync_directory. If `before` throws, a write writes half of its bytes, and any other operation
// does nothing.
class HookedFiles final : public FileSystem {
 public:
  explicit HookedFiles(std::function<void()> before) : before_(std::move(before)) {}

  void make_directory(const std::string& path) override {
    before_();
    real_files().make_directory(path);
  }
  std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) override {
    before_();
    return std::make_unique<File>(before_, real_files().create(path, bytes));
  }
  std::unique_ptr<OutputFile> open(const std::string& path) override {
    before_();
    return std::make_unique<File>(before_, real_files().open(path));
  }
  void rename(const std::string& from, const std::string& to) override {
    before_();
    real_files().rename(from, to);
  }
  void remove(const std::string& path) override { real_files().remove(path); }
  void sync_directory(const std::string& path) override { real_files().sync_directory(path); }

 private:
  class File final : public OutputFile {
   public:
    File(const std::function<void()>& before, std::unique_ptr<OutputFile> file)
        : before_(before), file_(std::move(file)) {}
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      try {
        before_();
      } catch (...) {
        file_->write_at(offset, bytes.first(bytes.size() / 2));
        throw;
      }
      file_->write_at(offset, bytes);
    }
    void finish() override {
      before_();
      file_->finish();
    }

   private:
    const std::function<void()>& before_;
    std::unique_ptr<OutputFile> file_;
  };

  const std::function<void()> before_;
};

}  // namespace trident::testing
