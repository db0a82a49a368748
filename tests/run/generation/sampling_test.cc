#include "run/generation/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace trident {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -1.0f, 2.5f};

// The share of each token in many draws.
std::map<std::int32_t, double> shares(const SamplingOptions& options,
                                      const std::vector<std::int32_t>& before = {}) {
  constexpr int kDraws = 20000;
  std::map<std::int32_t, double> result;
  for (int i = 0; i < kDraws; ++i) {
    result[sample(kLogits, before, options, static_cast<std::uint64_t>(i))] += 1.0 / kDraws;
  }
  return result;
}

// Returns softmax(logits / temperature) over the tokens in `kept`.
std::map<std::int32_t, double> expected(std::vector<float> logits, double temperature,
                                        const std::vector<std::int32_t>& kept) {
  double sum = 0;
  std::map<std::int32_t, double> result;
  for (const std::int32_t id : kept) {
    sum += result[id] = std::exp(logits[static_cast<std::size_t>(id)] / temperature);
  }
  for (auto& [id, share] : result) share /= sum;
  return result;
}

void expect_near(const std::map<std::int32_t, double>& got,
                 const std::map<std::int32_t, double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [id, share] : wanted) EXPECT_NEAR(got.at(id), share, 0.012) << id;
}

TEST(Sampling, WithoutTemperatureTheLikeliestTokenComes) {
  EXPECT_EQ(sample(kLogits, {}, {.temperature = 0}, 7), 1);
  EXPECT_EQ(sample({2, 5, 5}, {}, {.temperature = 0}, 7), 1) << "the first of equal ones";
}

TEST(Sampling, TokensComeAsOftenAsTheyAreLikely) {
  expect_near(shares({.temperature = 1, .top_k = 0}), expected(kLogits, 1, {0, 1, 2, 3, 4}));
  expect_near(shares({.temperature = 0.5, .top_k = 0}), expected(kLogits, 0.5, {0, 1, 2, 3, 4}));
}

TEST(Sampling, FiltersKeepTheTokensThatTransformersKeeps) {
  expect_near(shares({.temperature = 1, .top_k = 2}), expected(kLogits, 1, {1, 4}));
  EXPECT_EQ(shares({.temperature = 1, .top_k = 1}).size(), 1u);
  int equal = 0;  // draws of the last token, which ties for second place
  for (int i = 0; i < 1000; ++i) {
    equal += sample({1, 3, 2, 2}, {}, {.temperature = 1, .top_k = 2},
                    static_cast<std::uint64_t>(i)) == 3;
  }
  EXPECT_GT(equal, 100);
  // The probabilities in descending order: 0.47, 0.29, 0.17, 0.06, 0.01.
  expect_near(shares({.temperature = 1, .top_k = 0, .top_p = 0.5}), expected(kLogits, 1, {1, 4}));
  expect_near(shares({.temperature = 1, .top_k = 0, .top_p = 0.4}), expected(kLogits, 1, {1}));
  expect_near(shares({.temperature = 1, .top_k = 0, .top_p = 0}), expected(kLogits, 1, {1}));
  expect_near(shares({.temperature = 1, .top_k = 0, .min_p = 0.3}),
              expected(kLogits, 1, {1, 2, 4}));
  // top_p applies to the tokens that top_k keeps: 0.62, 0.38.
  expect_near(shares({.temperature = 1, .top_k = 2, .top_p = 0.6}), expected(kLogits, 1, {1}));
}

TEST(Sampling, RepetitionIsPenalisedOnceForEachToken) {
  std::vector<float> changed = kLogits;
  changed[1] /= 2;
  changed[3] *= 2;
  expect_near(shares({.temperature = 1, .top_k = 0, .repetition_penalty = 2}, {1, 1, 3, 1}),
              expected(changed, 1, {0, 1, 2, 3, 4}));
}

TEST(Sampling, SeedsDrawsAndTextsHaveRandomNumbersOfTheirOwn) {
  const auto draws = [](std::uint64_t seed, std::uint64_t text) {
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < 50; ++i) {
      ids.push_back(sample(kLogits, {}, {.temperature = 1, .seed = seed}, i, text));
    }
    return ids;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

}  // namespace
}  // namespace trident
