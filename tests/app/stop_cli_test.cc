// A run that ends early: signals at each moment of the run, and closed output streams.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class StopTest : public ::testing::Test {
 protected:
  StopTest() {
    spit(dir / "text.txt", small_text());
    spit(dir / "c.json", config.dump());
  }
  Outcome run(const std::vector<std::string>& set, ProgramOptions options) const {
    options.directory = dir.path();
    return run_program(train_arguments(set), options);
  }
  // The number of lines of metrics.jsonl.
  std::ptrdiff_t iterations() const {
    const std::string text = slurp(dir / "run/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  std::function<bool()> after(std::ptrdiff_t count) const {
    return [this, count] { return iterations() >= count; };
  }
  void expect_weights() const {
    const Outcome sample = run_program({"generate", "weights", "--prompt", "In ", "--tokens", "2"},
                                       {.directory = dir.path()});
    EXPECT_EQ(sample.code, 0) << sample.err;
  }

  TempDir dir;
  const json config{{"model", {{"num_layers", 2}, {"hidden_size", 16}, {"num_attention_heads", 2}}},
                    {"parallel", {{"data_parallel_size", 2}}},
                    {"batch", {{"global_batch_size", 4}, {"micro_batch_size", 2}}},
                    {"data", {{"train", {{{"path", "text.txt"}}}}, {"sequence_length", 16}}},
                    {"training", {{"train_iters", 1000000}}},
                    {"runtime", {{"threads_per_rank", 1}}},
                    {"checkpoint", {{"save", "weights"}}},
                    {"logging", {{"dir", "run"}, {"overwrite", true}, {"tensorboard", false}}}};
  // An evaluation that takes hours, at the end and after every two iterations.
  const std::vector<std::string> long_evaluation{"data.split=1,1", "training.eval_iters=1000000"};
};

TEST_F(StopTest, EverySignalSavesAtOnceWithoutAnEvaluation) {
  auto set = long_evaluation;
  set.push_back("training.eval_interval=0");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    SCOPED_TRACE(signal);
    std::filesystem::remove_all(dir / "run");
    std::filesystem::remove_all(dir / "weights");
    const Outcome outcome = run(set, {.until = after(3), .signal = signal});
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopping, saving"));
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("saved after iteration {}; the same command "
                                                   "resumes from there\n",
                                                   iterations())));
    EXPECT_THAT(slurp(dir / "run/metrics.jsonl"), Not(HasSubstr("validation_loss")));
    EXPECT_TRUE(std::filesystem::exists(dir / "run/report.html"));
    expect_weights();
  }
  // If the same command doesn't resume, the message doesn't say so.
  set.insert(set.end(), {"checkpoint.resume=never", "checkpoint.overwrite=true"});
  std::filesystem::remove_all(dir / "run");
  const Outcome outcome = run(set, {.until = after(3), .signal = SIGTERM});
  EXPECT_THAT(outcome.err, HasSubstr("saved after iteration"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("the same command resumes")));
}

TEST_F(StopTest, WithoutASaveFolderNoSaveIsReported) {
  const Outcome outcome = run({"checkpoint.save=null"}, {.until = after(1), .signal = SIGTERM});
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("SIGTERM: stopping; there is no checkpoint.save"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("saving")));
}

// nohup ignores SIGHUP, and a shell without job control ignores SIGINT for background jobs.
TEST_F(StopTest, ASignalThatIsIgnoredStaysIgnored) {
  for (const char* signal : {"INT", "TERM", "HUP", "USR1"}) {
    SCOPED_TRACE(signal);
    std::filesystem::remove_all(dir / "run");
    std::filesystem::remove_all(dir / "weights");
    const std::string ignoring = std::string("trap '' ") + signal + "; exec \"$@\"";
    ProgramOptions options{.launcher = {"sh", "-c", ignoring, "sh"}, .until = after(2)};
    const int number = signal == std::string("INT")    ? SIGINT
                       : signal == std::string("TERM") ? SIGTERM
                       : signal == std::string("HUP")  ? SIGHUP
                                                       : SIGUSR1;
    options.signal = number;
    const Outcome outcome = run({"training.train_iters=200"}, options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(iterations(), 200);
  }
}

TEST_F(StopTest, AnEvaluationIsBrokenOffOnAllRanks) {
  auto set = long_evaluation;
  set.insert(set.end(), {"training.eval_interval=2", "parallel.pipeline_model_parallel_size=2"});
  const Outcome outcome = run(set, {.until = after(1), .signal = SIGTERM});
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_LE(iterations(), 2);
  EXPECT_THAT(slurp(dir / "run/metrics.jsonl"), Not(HasSubstr("validation_loss")));
  expect_weights();
}

TEST_F(StopTest, BeforeTheFirstIterationNothingIsSaved) {
  ASSERT_EQ(run({"training.train_iters=1"}, {}).code, 0);
  std::filesystem::rename(dir / "weights", dir / "start");
  std::filesystem::remove_all(dir / "run");
  // Loading the weights is slow. The run prints its description before it loads them.
  ProgramOptions options{.launcher = {"strace", "-f", "-qq", "-o", dir / "calls", "-P",
                                      dir / "start/model.safetensors", "-e", "trace=pread64", "-e",
                                      "inject=pread64:delay_enter=500000"},
                         .out = dir / "out"};
  options.until = [&] {
    if (slurp(dir / "out").find("transport local") == std::string::npos) return false;
    ::kill(std::stoi(slurp(dir / "calls")), SIGTERM);  // strace's lines begin with the id
    return true;
  };
  const Outcome outcome = run({"checkpoint.load=start"}, options);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stopped before the first iteration"));
  EXPECT_EQ(iterations(), 0);
  EXPECT_FALSE(std::filesystem::exists(dir / "weights/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir / "run"));
}

TEST_F(StopTest, AClosedPipeEndsOnlyThePrinting) {
  for (const std::vector<int>& closed : {std::vector{1}, {2}, {1, 2}}) {
    for (const char* format : {"text", "json"}) {
      auto arguments = train_arguments({"training.train_iters=3"});
      arguments.insert(arguments.end(), {"--format", format});
      const Outcome outcome = run_program(arguments, {.directory = dir.path(), .closed = closed});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_THAT(outcome.err, IsEmpty());
      EXPECT_EQ(iterations(), 3);
      expect_weights();
    }
    // A failing run with closed streams also returns the run's exit code.
    const Outcome failed = run_program(train_arguments({"model.num_layers=0"}),
                                       {.directory = dir.path(), .closed = closed});
    EXPECT_EQ(failed.code, 2);
  }
}

// The next file that the program opens would get the closed stream's number. Output must not go to
// that file.
TEST_F(StopTest, NoFileTakesThePlaceOfAClosedStream) {
  for (const char* closing : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    const Outcome outcome =
        run_program(train_arguments({"training.train_iters=2", "logging.overwrite=true"}),
                    {.directory = dir.path(),
                     .launcher = {"sh", "-c", fmt::format(R"(exec "$0" "$@" {})", closing)}});
    EXPECT_EQ(outcome.code, 0) << closing << ": " << outcome.err;
    for (const char* folder : {"run", "weights"}) {
      std::ifstream file(dir / (std::string(folder) + "/.trident-run"));
      EXPECT_TRUE(nlohmann::json::parse(file, nullptr, false).is_object()) << closing << folder;
    }
    expect_weights();
  }
}

}  // namespace
}  // namespace trident::testing
