#include "run/startup/bf16_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/file.h"
#include "planner/plan/plan.h"
#include "run/startup/job_config.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Config bf16_config(const std::string& way = "auto") {
  Config config;
  config.precision.dtype = "bf16";
  config.runtime.device = "cpu";
  config.runtime.bf16_products = way;
  return config;
}

Bf16Machine measuring(Bf16Rates rates) {
  return {.instructions = CpuBf16::vectors, .measure = [rates] { return rates; }};
}
const Bf16Rates slow{70e9, 228e9}, fast{558e9, 270e9};

TEST(Bf16Products, AutoIsTheFasterWayOfTheMachine) {
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", measuring(slow)).way, "widened");
  EXPECT_THAT(choose_bf16_products(bf16_config(), "", measuring(slow)).text,
              HasSubstr("widened (native 70, widened 228 GFLOP/s)"));
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", measuring(fast)).way, "native");
  // If both rates are nearly equal, the native instructions are chosen.
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", measuring({100e9, 104e9})).way, "native");
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", measuring({100e9, 106e9})).way, "widened");
}

TEST(Bf16Products, NothingIsMeasuredWhereThereIsNothingToChoose) {
  const auto never = [] {
    ADD_FAILURE() << "measured";
    return Bf16Rates{};
  };
  Bf16Machine machine{.instructions = CpuBf16::vectors, .measure = never};
  for (const char* way : {"native", "widened"}) {
    EXPECT_EQ(choose_bf16_products(bf16_config(way), "", machine).way, way);
  }
  Config other = bf16_config();
  other.precision.dtype = "fp32";
  EXPECT_EQ(choose_bf16_products(other, "", machine).way, "auto");
  other = bf16_config();
  other.runtime.device = "cuda";
  EXPECT_EQ(choose_bf16_products(other, "", machine).way, "auto");
  machine.instructions = CpuBf16::none;
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", machine).way, "auto");
  EXPECT_EQ(choose_bf16_products(bf16_config(), "widened", machine).way, "widened");
  machine.instructions = CpuBf16::tiles;
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", machine).way, "native");
}

TEST(Bf16Products, RatesOfAnEarlierRunAreKept) {
  std::vector<Bf16Rates> kept;
  Bf16Machine machine = measuring(slow);
  machine.keep = [&](const Bf16Rates& rates) { kept.push_back(rates); };
  choose_bf16_products(bf16_config(), "", machine);
  ASSERT_EQ(kept.size(), 1U);
  machine = measuring(fast);
  machine.kept = kept[0];
  EXPECT_EQ(choose_bf16_products(bf16_config(), "", machine).way, "widened");

  // The rates are kept in a file by machine.
  const TempDir dir;
  Launch launch;
  launch.cache_folder = dir / "cache";
  EXPECT_FALSE(bf16_machine(bf16_config(), launch).kept.known());
  bf16_machine(bf16_config(), launch).keep(slow);
  EXPECT_EQ(bf16_machine(bf16_config(), launch).kept.widened, slow.widened);
  std::ofstream(dir / "cache/bf16_products.json") << "{damaged";
  EXPECT_FALSE(bf16_machine(bf16_config(), launch).kept.known());
  bf16_machine(bf16_config(), launch).keep(fast);
  EXPECT_EQ(bf16_machine(bf16_config(), launch).kept.native, fast.native);
}

TEST(Bf16Products, AResumedRunKeepsItsWayAndNamesAnother) {
  EXPECT_EQ(choose_bf16_products(bf16_config(), "native", measuring(fast)).text, "");
  const Bf16Choice stays = choose_bf16_products(bf16_config(), "native", measuring(slow));
  EXPECT_EQ(stays.way, "native");
  EXPECT_THAT(stays.text, HasSubstr("stay native"));
  EXPECT_THAT(stays.text, HasSubstr("widened would be chosen here (native 70, widened 228"));
  const Bf16Choice on_amx =
      choose_bf16_products(bf16_config(), "widened", {.instructions = CpuBf16::tiles});
  EXPECT_EQ(on_amx.way, "widened");
  EXPECT_THAT(on_amx.text, HasSubstr("AMX"));
}

TEST(Bf16Products, WeightsKeepTheWayOfTheirRunOrTakeAMuchFasterOne) {
  Bf16Machine machine{.instructions = CpuBf16::vectors};
  EXPECT_EQ(choose_products_of_weights(bf16_config(), "", machine), "native");
  machine.kept = {100e9, 119e9};
  EXPECT_EQ(choose_products_of_weights(bf16_config(), "", machine), "native");
  machine.kept = {100e9, 121e9};
  EXPECT_EQ(choose_products_of_weights(bf16_config(), "", machine), "widened");
  EXPECT_EQ(choose_products_of_weights(bf16_config(), "native", machine), "native");
  EXPECT_EQ(choose_products_of_weights(bf16_config("native"), "widened", machine), "native");
  machine.instructions = CpuBf16::tiles;
  EXPECT_EQ(choose_products_of_weights(bf16_config(), "", machine), "native");
}

std::string way_in(const std::string& path) {
  const auto document = nlohmann::json::parse(read_file(path));
  return document.at("runtime").at("bf16_products").get<std::string>();
}

TrainingJob job_of(const Config& config, Bf16Rates rates) {
  return prepare_job(LoadedConfig{.config = config}, Launch{}, {.writes = true}, measuring(rates));
}

TEST(Bf16Products, ARunWritesItsWayAndResumesWithIt) {
  const TempDir dir;
  const Overrides bf16{"precision.dtype=bf16", "runtime.device=cpu", "training.train_iters=4"};
  Config config = every_second(dir, bf16);
  {
    const TrainingJob job = job_of(config, slow);
    EXPECT_EQ(job.inputs.config.runtime.bf16_products, "widened");
    EXPECT_EQ(job.made_by.at("bf16 products"), "widened");
    Messages messages;
    run_job(job, {.trainer = messages.hooks(2)});
    EXPECT_THAT(messages.all(), HasSubstr("bf16 products: widened"));
  }
  EXPECT_EQ(way_in(dir / "log/config.json"), "widened");
  EXPECT_EQ(way_in(dir / "w/iteration-2/trident/config.json"), "widened");
  EXPECT_THAT(read_file(dir / "log/run.json"), HasSubstr("\"bf16 products\": \"widened\""));
  for (const char* folder : {"log", "w", "w/", "w/iteration-2"}) {
    EXPECT_EQ(saved_bf16_products(dir / folder), "widened") << folder;
  }
  EXPECT_EQ(saved_bf16_products(dir.path()), "");
  // The job runs on a machine that would choose otherwise.
  const TrainingJob job = job_of(config, fast);
  EXPECT_EQ(job.inputs.config.runtime.bf16_products, "widened");
  Messages messages;
  run_job(job, {.trainer = messages.hooks()});
  EXPECT_THAT(messages.all(), HasSubstr("bf16 products stay widened"));
  EXPECT_THAT(messages.all(), Not(HasSubstr("differs from the checkpoint: /runtime")));
}

TEST(Bf16Products, AnotherWayThatIsAskedForIsReportedWhereARunResumes) {
  const TempDir dir;
  const Overrides bf16{"precision.dtype=bf16", "runtime.device=cpu", "training.train_iters=4"};
  {
    const TrainingJob job = job_of(every_second(dir, bf16), slow);
    Messages messages;
    run_job(job, {.trainer = messages.hooks(2)});
  }
  const TrainingJob job =
      job_of(every_second(dir, bf16 + Overrides{"runtime.bf16_products=native"}), slow);
  EXPECT_EQ(job.inputs.config.runtime.bf16_products, "native");
  Messages messages;
  run_job(job, {.trainer = messages.hooks()});
  EXPECT_THAT(messages.all(),
              HasSubstr("/runtime/bf16_products: \"widened\" in the checkpoint, now "
                        "\"native\""));
}

TEST(Bf16Products, ARequestedWayIsNotReplacedByTheChoiceOfRankZero) {
  const auto choose = [] { return Bf16Choice{"widened", "why"}; };
  Config config = bf16_config();
  EXPECT_EQ(agree_on_bf16_products(config, Launch{}, choose), "why");
  EXPECT_EQ(config.runtime.bf16_products, "widened");
  config = bf16_config("native");
  EXPECT_EQ(agree_on_bf16_products(config, Launch{}, choose), "");
  EXPECT_EQ(config.runtime.bf16_products, "native");
}

}  // namespace
}  // namespace trident::testing
