#include "run/processes/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/error.h"
#include "engine/replicas.h"
#include "run/loop/trainer.h"
#include "settings/values.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::map<std::string, std::string> prints_of(const Config& config) {
  std::map<std::string, std::string> prints;
  for (const Fingerprint& one : config_fingerprints(config)) prints[one.name] = one.value;
  return prints;
}

TEST(Agreement, EveryKeyIsComparedButThoseThatOnlyRank0Uses) {
  const Config config = seeded_config("gpt2", "run");
  const auto prints = prints_of(config);
  std::vector<std::string> left_out;
  for (const auto& [key, value] : config_values(config)) {
    if (!prints.contains("config: " + key)) left_out.push_back(key);
  }
  EXPECT_THAT(left_out, ElementsAre("/logging/dir", "/logging/overwrite", "/logging/log_interval",
                                    "/logging/tensorboard"));
  const auto differing = [&](const Overrides& overrides) {
    std::vector<std::string> names;
    for (const auto& [name, value] : prints_of(seeded_config("gpt2", "run", overrides))) {
      if (prints.at(name) != value) names.push_back(name);
    }
    return names;
  };
  EXPECT_THAT(differing({"data.seed=7"}), ElementsAre("config: /data/seed"));
  EXPECT_THAT(differing({"data.train.0.weight=2"}), ElementsAre("config: /data/train"));
  EXPECT_THAT(differing({"runtime.threads_per_rank=3"}),
              ElementsAre("config: /runtime/threads_per_rank"));
  EXPECT_THAT(differing({"training.eval_interval=3"}),
              ElementsAre("config: /training/eval_interval"));
  EXPECT_THAT(differing({"checkpoint.load=weights"}), ElementsAre("config: /checkpoint/load"));
  EXPECT_THAT(differing({"data.train.0.path=elsewhere", "logging.dir=other"}), ElementsAre());
}

// Runs ranks as threads; `paths` has one path for each rank.
std::vector<std::vector<Fingerprint>> prints_of_ranks(const std::vector<std::string>& paths) {
  const auto ranks = static_cast<std::ptrdiff_t>(paths.size());
  std::vector<std::vector<Fingerprint>> prints(paths.size());
  std::vector<std::string> given(paths.size());
  std::string answer;
  std::barrier all_ranks(ranks);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < paths.size(); ++rank) {
    threads.emplace_back([&, rank] {
      prints[rank] = file_fingerprints({{"file", paths[rank]}}, static_cast<int>(rank),
                                       [&](const auto& own, const auto& make) {
                                         given[rank] = own;
                                         all_ranks.arrive_and_wait();
                                         if (rank == 0) answer = make(given);
                                         all_ranks.arrive_and_wait();
                                         std::string mine = answer;
                                         all_ranks.arrive_and_wait();
                                         return mine;
                                       });
    });
  }
  threads.clear();
  return prints;
}

TEST(Agreement, ContentsOfFilesCountNotTheirPaths) {
  const TempDir dir;
  std::ofstream(dir / "a") << "some text";
  std::ofstream(dir / "b") << "some text";
  std::ofstream(dir / "c") << "same size";
  std::filesystem::create_symlink(dir / "a", dir / "link");
  const auto one = prints_of_ranks({dir / "a", dir / "link", dir / "a"});
  for (const auto& rank : one) EXPECT_EQ(rank[0].value, "the same file");
  const auto equal = prints_of_ranks({dir / "a", dir / "b", dir / "a"});
  EXPECT_EQ(equal[0][0].value, equal[1][0].value);
  EXPECT_EQ(equal[0][0].value, equal[2][0].value);
  EXPECT_THAT(equal[0][0].value, HasSubstr("9 bytes (contents "));
  const auto other = prints_of_ranks({dir / "a", dir / "a", dir / "c"});
  EXPECT_EQ(other[0][0].value, other[1][0].value);
  EXPECT_NE(other[0][0].value, other[2][0].value);
  const auto missing = prints_of_ranks({dir / "a", dir / "none"});
  EXPECT_THAT(missing[1][0].value, HasSubstr("none: can't open"));
}

TEST(Agreement, TheMachinesFingerprintsNameItsLibrariesAndDevice) {
  const Config config = seeded_config("gpt2", "run");
  std::vector<std::string> names;
  for (const Fingerprint& one : machine_fingerprints(Devices(config), {{"ONEDNN_X", "1"}})) {
    names.push_back(one.name);
    EXPECT_NE(one.value, "");
  }
  EXPECT_THAT(names, ElementsAre("program", "device", "matrix products", "C library",
                                 "environment: ONEDNN_X"));
}

std::string error_of_spoiling(const Layout& layout, const std::string& parameter, int rank) {
  try {
    on_ranks(seeded_config("gpt2", "run", overrides_of(layout)), {}, [&](Rank& own) {
      for (const auto& one : unique_parameters(own.model.chunks())) {
        if (one->name() != parameter || own.model.topology().world.rank() != rank) continue;
        const std::vector<float> value{123};
        own.model.context().copy_from_host(one->weight().flat(5, 1),
                                           std::as_bytes(std::span(value)));
      }
      require_equal_replicas(own.model);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "equal";
}

TEST(Replicas, ADifferingBitIsNamed) {
  const Layout layout{2, 2, 2};
  EXPECT_EQ(error_of_spoiling(layout, "", 0), "equal");
  EXPECT_THAT(error_of_spoiling(layout, "layers.0.attention.qkv.weight", 2),
              HasSubstr("group 'data': parameter layers.0.attention.qkv.weight differs before the "
                        "first step: rank 0 has "));
  EXPECT_THAT(error_of_spoiling({1, 2, 2}, "layers.0.attention_norm.weight", 1),
              HasSubstr("group 'tensor': parameter layers.0.attention_norm.weight"));
  EXPECT_THAT(error_of_spoiling({1, 1, 2}, "embedding.weight", 1),
              HasSubstr("group 'embedding': parameter embedding.weight"));
}

// A user's model whose initial weights differ each time that it is made.
class Unsteady final : public Architecture {
 public:
  TransformerShape shape(const Config& config) const override { return gpt2_->shape(config); }
  std::unique_ptr<Module> layer(const ParallelContext& parallel, const TransformerShape& shape,
                                int index) const override {
    TransformerShape mine = shape;
    mine.init_deviation *= 1.0f + 0.1f * static_cast<float>(calls_++);
    return gpt2_->layer(parallel, mine, index);
  }
  const FamilyFormats& formats() const override { return gpt2_->formats(); }

 private:
  std::shared_ptr<const Architecture> gpt2_ = make_gpt2();
  mutable std::atomic<int> calls_ = 0;
};

TEST(Replicas, ARunWithDifferingReplicasIsRefusedBeforeItWritesAnything) {
  const TempDir dir;
  const auto run = [&](const std::string& logs, const ArchitectureSet& architectures) {
    Registry registry = built_in_registry();
    registry.architectures = architectures;
    const Config config =
        seeded_config("gpt2", dir / logs, overrides_of({2, 1, 1}), {}, constraints_of(registry));
    int begun = 0;
    train_local(prepare_training(config), {.on_begin = [&](const StartingPoint&) { ++begun; }});
    return begun;
  };
  EXPECT_EQ(run("even", built_in_architectures()), 1);
  EXPECT_THROW(run("odd", {{"gpt2", std::make_shared<Unsteady>()}}), RequestError);
  EXPECT_FALSE(std::filesystem::exists(dir / "odd"));
}

}  // namespace
}  // namespace trident::testing
