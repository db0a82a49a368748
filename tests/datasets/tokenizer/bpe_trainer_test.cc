#include "datasets/tokenizer/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Merges = std::vector<std::string>;

WordCounts counted(const std::vector<std::pair<std::string, int>>& words) {
  WordCounts counts;
  for (const auto& [word, count] : words) counts.add(word, static_cast<std::uint64_t>(count));
  return counts;
}

Merges merges_of(const TrainedBpe& trained) {
  Merges merges;
  for (const auto& [left, right] : trained.merges) {
    merges.push_back(trained.tokens[static_cast<std::size_t>(left)] + " " +
                     trained.tokens[static_cast<std::size_t>(right)]);
  }
  return merges;
}

// The rule as its definition: all pairs are counted again before each merge.
Merges slowly(const std::map<std::string, int>& words, const BpeTraining& training) {
  const TrainedBpe bytes = train_bpe({}, {.vocab_size = 256});
  std::vector<std::string> tokens = bytes.tokens;
  std::vector<std::pair<std::vector<std::size_t>, int>> split;
  for (const auto& [word, count] : words) {
    split.emplace_back(std::vector<std::size_t>{}, count);
    for (const char c : word) {
      split.back().first.push_back(
          static_cast<std::size_t>(std::ranges::find(tokens, std::string(1, c)) - tokens.begin()));
    }
  }
  Merges merges;
  while (std::ssize(tokens) < training.vocab_size) {
    std::map<std::pair<std::size_t, std::size_t>, int> pairs;
    for (const auto& [ids, count] : split) {
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += count;
    }
    const auto best = std::ranges::max_element(
        pairs, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == pairs.end() || best->second < training.min_frequency) break;
    const auto [left, right] = best->first;
    merges.push_back(tokens[left] + " " + tokens[right]);
    for (auto& [ids, count] : split) {
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        if (ids[i] != left || ids[i + 1] != right) continue;
        ids[i] = tokens.size();
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    tokens.push_back(tokens[left] + tokens[right]);
  }
  return merges;
}

// This is the example of Sennrich et al. 2016.
TEST(BpeTrainer, JoinsThePairThatComesMostOften) {
  auto words = counted({{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}});
  const TrainedBpe trained = train_bpe(std::move(words), {.vocab_size = 260});
  EXPECT_THAT(merges_of(trained), ElementsAre("e s", "es t", "l o", "lo w"));
  EXPECT_THAT(trained.tokens, SizeIs(260));
  EXPECT_EQ(trained.tokens[257], "est");
}

// The words have few letters, so that many pairs are equally frequent and words overlap themselves.
TEST(BpeTrainer, FindsTheMergesOfCountingAnew) {
  std::mt19937 draw(5);
  for (int round = 0; round < 20; ++round) {
    std::map<std::string, int> words;
    for (int i = 0; i < 60; ++i) {
      std::string word;
      for (unsigned letters = draw() % 12 + 1; letters > 0; --letters) {
        word += static_cast<char>('a' + draw() % (1 + round % 4));
      }
      words[word] += static_cast<int>(draw() % 3) + 1;
    }
    const BpeTraining training{.vocab_size = 300 + 200 * (round % 3), .min_frequency = round % 4};
    const auto list = std::vector<std::pair<std::string, int>>(words.begin(), words.end());
    EXPECT_EQ(merges_of(train_bpe(counted(list), training)), slowly(words, training)) << round;
  }
}

TEST(BpeTrainer, SpecialTokensComeFirstAndMayBeBytesOrMerges) {
  const TrainedBpe trained =
      train_bpe(counted({{"abc", 3}, {"ab", 2}}),
                {.vocab_size = 300, .special_tokens = {"<s>", "ab", "a", "<s>"}});
  EXPECT_THAT(std::vector(trained.tokens.begin(), trained.tokens.begin() + 4),
              ElementsAre("<s>", "ab", "a", "!"));
  EXPECT_THAT(merges_of(trained), ElementsAre("a b", "ab c"));
  EXPECT_THAT(trained.tokens, SizeIs(2 + 256 + 1)) << "a byte and a merge have their token's id";
}

TEST(BpeTrainer, TokensAreShorterThanTheLongest) {
  const auto merges = [](std::int64_t longest) {
    return merges_of(
        train_bpe(counted({{"abababab", 4}}), {.vocab_size = 300, .max_token_length = longest}));
  };
  EXPECT_THAT(merges(5), ElementsAre("a b", "ab ab"));
  EXPECT_THAT(merges(4), ElementsAre("a b"));
}

TEST(BpeTrainer, AVocabularyWithoutRoomForTheBytesIsRefused) {
  const auto message = testing::message_of<RequestError>(
      [] { train_bpe({}, {.vocab_size = 256, .special_tokens = {"<s>"}}); });
  EXPECT_THAT(message,
              HasSubstr("of 256 is too small: the 256 bytes and the special tokens need 257"));
}

TEST(WordCounts, KeepTheCountsAndDropTheRarestWords) {
  WordCounts counts;
  std::map<std::string, std::uint64_t> expected;
  const auto add = [&](const std::string& word, std::uint64_t count) {
    counts.add(word, count);
    expected[word] += count;
  };
  for (std::uint64_t i = 0; i < 5000; ++i) add(std::to_string(i % 3000), i % 4 + 1);
  add(std::string(100'000, 'x'), 9);
  add(std::string("\0\xff", 2), 9);
  WordCounts twice;
  twice.add(counts);
  twice.add(counts);
  twice.drop_rare(10);
  std::erase_if(expected, [](const auto& word) { return 2 * word.second <= 10; });
  ASSERT_EQ(twice.words().size(), expected.size());
  ASSERT_GT(expected.size(), 100u);
  std::uint64_t bytes = 0;
  for (const WordCounts::Word& word : twice.words()) {
    EXPECT_EQ(word.count, 2 * expected.at(std::string(word.text())));
    bytes += word.size;
  }
  EXPECT_EQ(twice.bytes(), bytes);
  twice.add(std::string("\0\xff", 2), 1);
  EXPECT_EQ(twice.words().size(), expected.size()) << "it is found after others have gone";
}

}  // namespace
}  // namespace trident
