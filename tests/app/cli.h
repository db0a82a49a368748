// The fixture of the program's black-box tests: a directory with a text and a config.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/program.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    // The test must not use another run's measurements of this machine, but for the rate of
    // products, which would take each test's first run a second or more.
    setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    if (!rates().empty()) {
      std::filesystem::create_directories(cache / "trident");
      spit(cache / rates_file, rates());
    }
    spit(dir / "text.txt", small_text());
    spit(dir / "file", "not a directory");
    spit(dir / "c.json", config.dump());
  }

  Outcome run(const std::vector<std::string>& arguments, ProgramOptions options = {}) const {
    options.directory = dir.path();
    return run_program(arguments, options);
  }
  static std::vector<std::string> train(const std::vector<std::string>& set) {
    return train_arguments(set);
  }
  // Expects that the request is refused with all of `messages`, each in a line of its own, that
  // stdout is empty and that no file was added.
  void expect_refused(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& messages) const {
    const std::vector<std::string> before = names();
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.out, ::testing::IsEmpty());
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t end; (end = outcome.err.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      lines.push_back(outcome.err.substr(begin, end - begin));
    }
    EXPECT_EQ(begin, outcome.err.size()) << "the last line has no end";
    EXPECT_EQ(lines.size(), messages.size()) << outcome.err;
    for (const std::string& message : messages) {
      EXPECT_THAT(lines, ::testing::Contains(::testing::HasSubstr(message)));
    }
    EXPECT_EQ(names(), before) << "something was written";
  }
  // Returns every path below the test's directory.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
      all.push_back(entry.path().string());
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  void train_once() const {
    const Outcome outcome = run(train({}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  // Checks that metrics.jsonl consists of complete JSON lines, numbered from 1 (`all`) or at least
  // ascending (`some`). Returns the number of lines.
  enum class Numbers { all, some };
  std::int64_t metrics_lines(const std::string& path, Numbers numbers = Numbers::all) const {
    const std::string text = slurp(path);
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "metrics.jsonl ends within a line";
    std::int64_t count = 0, last = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
      const auto iteration = line.at("iteration").get<std::int64_t>();
      EXPECT_GT(iteration, last);
      last = iteration;
      ++count;
      if (numbers == Numbers::all) {
        EXPECT_EQ(iteration, count);
      }
      begin = end + 1;
    }
    return count;
  }

  ~CliTest() override {
    if (std::filesystem::exists(cache / rates_file)) rates() = slurp(cache / rates_file);
  }
  // The contents of the file that keeps rates, from the tests before.
  static std::string& rates() {
    static std::string text;
    return text;
  }

  static constexpr const char* rates_file = "trident/product_rates.json";
  TempDir dir;
  const TempDir cache;
  const nlohmann::json config{
      {"model", {{"num_layers", 2}, {"hidden_size", 16}, {"num_attention_heads", 2}}},
      {"parallel", {{"data_parallel_size", 1}}},
      {"batch", {{"global_batch_size", 4}, {"micro_batch_size", 2}}},
      {"data", {{"train", {{{"path", "text.txt"}}}}, {"sequence_length", 16}}},
      {"training", {{"train_iters", 3}}},
      {"checkpoint", {{"save", "weights"}}},
      {"logging", {{"dir", "run"}}}};
};

}  // namespace trident::testing
