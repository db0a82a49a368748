#include "datasets/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "datasets/batch_sampler.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::spit;
using testing::TempDir;

TEST(Datasets, SplitDividesEachStreamInOrderWithoutOverlap) {
  EXPECT_THAT(split_edges(1000, {949, 50, 1}), ElementsAre(949, 999));
  EXPECT_THAT(split_edges(1001, {0.9, 0.1, 0}), ElementsAre(901, 1001));
  EXPECT_THAT(split_edges(77, {1, 0, 0}), ElementsAre(77, 77));
  EXPECT_THROW(split_edges(10, {1, -1, 0}), RequestError);
  EXPECT_THROW(split_edges(10, {0, 0, 0}), RequestError);

  const TempDir dir;
  spit(dir / "a", std::string(600, 'a') + std::string(300, 'b') + std::string(100, 'c'));
  const auto built = build_datasets({.train = {{dir / "a", 1}},
                                     .validation = {},
                                     .split = {6, 3, 1},
                                     .sequence_length = 10,
                                     .vocab_size = 256});
  ASSERT_EQ(built.validation.size(), 1u);
  EXPECT_EQ(built.train->samples_per_epoch(), 59);
  EXPECT_EQ(built.validation[0].second->samples_per_epoch(), 29);
  for (const auto& [data, letter] :
       {std::pair(built.train, 'a'), std::pair(built.validation[0].second, 'b')}) {
    BatchSampler sampler(data, {100, 100, 0, 1});
    HostMicroBatch batch;
    sampler.fill(0, 0, batch);
    EXPECT_THAT(batch.tokens, ::testing::Each(letter));
    EXPECT_THAT(batch.labels, ::testing::Each(letter));
  }
}

TEST(Datasets, NamedValidationSetsAreBuiltApart) {
  const TempDir dir;
  spit(dir / "a", std::string(100, 'a'));
  spit(dir / "b", std::string(200, 'b'));
  const auto built =
      build_datasets({.train = {{dir / "a", 1}, {dir / "b", 3}},
                      .validation = {{"first", {{dir / "a", 1}}}, {"second", {{dir / "b", 1}}}},
                      .sequence_length = 10,
                      .vocab_size = 256});
  EXPECT_EQ(built.train->samples_per_epoch(), 9 + 19);
  ASSERT_EQ(built.validation.size(), 2u);
  EXPECT_EQ(built.validation[0].first, "first");
  EXPECT_EQ(built.validation[1].second->samples_per_epoch(), 19);
}

TEST(Datasets, AllProblemsAreNamedAtOnceWithTheirPlaces) {
  const TempDir dir;
  spit(dir / "short", std::string(10, 'x'));
  spit(dir / "empty", "");
  const DataSpec spec = {.train = {{dir / "none", 1}, {dir / "empty", 1}},
                         .validation = {{"", {{dir / "short", 1}}}, {"x/y", {{dir / "gone", 1}}}},
                         .sequence_length = 10,
                         .vocab_size = 256};
  const auto message = message_of<RequestError>([&] { build_datasets(spec); });
  EXPECT_THAT(message, HasSubstr("config: /data/train/0/path: " + (dir / "none")));
  EXPECT_THAT(message,
              HasSubstr("config: /data/train/1/path: " + (dir / "empty") + ": the file is empty"));
  EXPECT_THAT(message, HasSubstr("config: /data/validation: " + (dir / "short") +
                                 ": tokens 0 to 10 of 10 are too few: a sample of "
                                 "sequence_length 10 takes 11"));
  EXPECT_THAT(message, HasSubstr("config: /data/validation/x~1y/0/path: "));

  EXPECT_THAT(message_of<RequestError>([&] {
                build_datasets({.train = {{dir / "short", 1}},
                                .validation = {{"", {{dir / "short", 1}}}},
                                .split = {9, 1, 0},
                                .sequence_length = 2,
                                .vocab_size = 256});
              }),
              HasSubstr("use one of the two"));
  EXPECT_THAT(message_of<RequestError>([&] {
                build_datasets({.train = {{dir / "short", 1}},
                                .validation = {},
                                .split = {9, 1, 0},
                                .sequence_length = 2,
                                .vocab_size = 256});
              }),
              HasSubstr("/data/split: " + (dir / "short") + ": tokens 9 to 10"));
  EXPECT_THAT(
      message_of<RequestError>([&] {
        build_datasets({.train = {}, .validation = {}, .sequence_length = 2, .vocab_size = 256});
      }),
      HasSubstr("/data/train: names no source"));
}

// All sources share the tokenizer, so its error names no source.
TEST(Datasets, AnErrorOfTheTokenizerIsReportedOnce) {
  const TempDir dir;
  spit(dir / "a.jsonl", "{\"text\": \"a\"}");
  spit(dir / "b.jsonl", "{\"text\": \"b\"}");
  DataSpec spec = {.train = {{dir / "a.jsonl", 1}, {dir / "none", 1}},
                   .validation = {{"", {{dir / "b.jsonl", 1}}}},
                   .sequence_length = 10,
                   .vocab_size = 256};
  spec.texts.encoder = []() -> DocumentEncoder {
    throw RequestError("config: /data/tokenizer/path: t.json: isn't JSON");
  };
  const auto message = message_of<RequestError>([&] { build_datasets(spec); });
  EXPECT_THAT(message, ::testing::StartsWith("config: /data/tokenizer/path: t.json: isn't JSON\n"));
  EXPECT_EQ(message.find("isn't JSON"), message.rfind("isn't JSON"));
  EXPECT_THAT(message, HasSubstr("config: /data/train/1/path: " + (dir / "none")));
}

}  // namespace
}  // namespace trident
