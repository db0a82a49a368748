#include "report/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using nlohmann::ordered_json;
using testing::FullDisk;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spit;
using testing::TempDir;

TEST(MetricsFile, NumbersReadBackBitByBitAndKeysKeepTheirOrder) {
  const TempDir dir;
  std::mt19937_64 random(3);
  std::vector<double> values = {0.1, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 1.0 / 3, 1e22};
  while (values.size() < 2000) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  {
    auto file = MetricsFile::create(dir.path(), false);
    for (std::size_t i = 0; i < values.size(); ++i) {
      file.append({{"iteration", i + 1}, {"loss", values[i]}, {"a", {{"b", 1}}}});
    }
  }
  const auto lines = read_metrics(dir / "metrics.jsonl");
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i]["loss"].get<double>()),
              std::bit_cast<std::uint64_t>(values[i]));
  }
  EXPECT_THAT(slurp(dir / "metrics.jsonl"),
              ::testing::StartsWith("{\"iteration\":1,\"loss\":0.1,\"a\":{\"b\":1}}\n"));
}

TEST(MetricsFile, AUsedFolderIsRefusedUnlessOverwritten) {
  const TempDir dir;
  MetricsFile::create(dir.path(), false).append({{"iteration", 1}});
  EXPECT_THAT(message_of<RequestError>([&] { MetricsFile::create(dir.path(), false); }),
              HasSubstr("logging.overwrite"));
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").size(), 1u);
  MetricsFile::create(dir.path(), true);
  EXPECT_EQ(slurp(dir / "metrics.jsonl"), "");
}

TEST(MetricsFile, AResumeTruncatesToItsIterationAndDropsATornLastLine) {
  const TempDir dir;
  {
    auto file = MetricsFile::create(dir.path(), false);
    for (int i = 1; i <= 5; ++i) file.append({{"iteration", i}});
  }
  spit(dir / "metrics.jsonl", slurp(dir / "metrics.jsonl") + "{\"iteration\":6,\"lo");
  EXPECT_THAT(message_of<RequestError>([&] { read_metrics(dir / "metrics.jsonl"); }),
              HasSubstr("metrics.jsonl:6: the last line is incomplete"));
  MetricsFile::resume(dir.path(), 9).append({{"iteration", 10}});
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").size(), 6u);
  MetricsFile::resume(dir.path(), 3).append({{"iteration", 4}, {"again", true}});
  const auto lines = read_metrics(dir / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3], ordered_json({{"iteration", 4}, {"again", true}}));

  spit(dir / "metrics.jsonl", "{\"iteration\":1}\nnonsense\n{\"iteration\":2}\n");
  EXPECT_THAT(message_of<RequestError>([&] { MetricsFile::resume(dir.path(), 5); }),
              HasSubstr("metrics.jsonl:2: needs a JSON object"));
  const TempDir other;
  MetricsFile::resume(other.path(), 5);
  EXPECT_EQ(slurp(other / "metrics.jsonl"), "");
}

TEST(MetricsFile, AFullDiskKeepsTheCompleteLines) {
  const TempDir dir;
  auto file = MetricsFile::create(dir.path(), false);
  file.append({{"iteration", 1}});
  {
    const FullDisk full(20);
    EXPECT_THROW(file.append({{"iteration", 2}}), Error);
  }
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").size(), 1u);
}

}  // namespace
}  // namespace trident
