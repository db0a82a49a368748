#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "datasets/batch_sampler.h"
#include "datasets/datasets.h"
#include "datasets/interleave.h"
#include "datasets/permutation.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::spit;
using testing::TempDir;

// Token i of the stream is base + i, so that a batch shows the position that it came from.
class Counting : public TokenSource {
 public:
  Counting(std::int64_t size, std::int32_t base) : size_(size), base_(base) {}
  const std::string& path() const override { return path_; }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    ASSERT_GE(begin, 0);
    ASSERT_LE(begin + static_cast<std::int64_t>(out.size()), size_);
    std::iota(out.begin(), out.end(), base_ + static_cast<std::int32_t>(begin));
  }

 private:
  std::string path_ = "counting";
  std::int64_t size_;
  std::int32_t base_;
};

std::shared_ptr<const Dataset> dataset(std::vector<std::pair<std::int64_t, double>> sizes_weights,
                                       std::int64_t s, bool shuffle, std::uint64_t seed = 1) {
  std::vector<DataPart> parts;
  for (const auto& [size, weight] : sizes_weights) {
    const auto base = static_cast<std::int32_t>(parts.size()) * 1000000;
    parts.push_back({std::make_shared<Counting>(size, base), 0, size, weight});
  }
  return std::make_shared<Dataset>(std::move(parts), s, SampleOrder{shuffle, seed, "train"});
}

TEST(Permutation, IsABijectionOfEverySizeAndDependsOnEveryKeyPart) {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    const Permutation permutation(n, 42, 0, 3);
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto at = permutation(i);
      ASSERT_LT(at, n);
      ASSERT_FALSE(seen[at]);
      seen[at] = true;
    }
  }
  const auto order = [](std::uint64_t key, std::uint32_t stream, std::uint64_t epoch) {
    const Permutation permutation(1000, key, stream, epoch);
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(permutation(i));
    return all;
  };
  const std::set<std::vector<std::uint64_t>> orders = {
      order(1, 0, 0), order(2, 0, 0), order(std::uint64_t{1} << 32, 0, 0),
      order(1, 1, 0), order(1, 0, 1), order(1, 0, std::uint64_t{1} << 32)};
  EXPECT_EQ(orders.size(), 6u);
  EXPECT_EQ(order(1, 0, 0), order(1, 0, 0));
  EXPECT_LT(Permutation((std::uint64_t{1} << 62) - 1, 1, 0, 0)(5), std::uint64_t{1} << 62);
  EXPECT_THROW(Permutation(0, 1, 0, 0), Error);
}

TEST(Permutation, LooksUniform) {
  // Counts every (index, image) pair of 10 elements over 20,000 epochs. With 81 degrees of freedom,
  // a statistic beyond 150 has a chance of about 5 in a million.
  constexpr int kEpochs = 20000;
  std::vector<int> counts(100);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(10, 9, 0, static_cast<std::uint64_t>(epoch));
    for (std::uint64_t i = 0; i < 10; ++i) ++counts[i * 10 + permutation(i)];
  }
  double statistic = 0;
  for (const int count : counts) statistic += (count - 2000.0) * (count - 2000.0) / 2000.0;
  EXPECT_LT(statistic, 150);
}

// Megatron-LM's rule in exact arithmetic, for integer weights.
std::vector<int> reference_order(const std::vector<std::int64_t>& weights, int samples) {
  const auto total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<std::int64_t> drawn(weights.size());
  std::vector<int> order;
  for (std::int64_t i = 0; i < samples; ++i) {
    std::size_t best = 0;
    for (std::size_t j = 1; j < weights.size(); ++j) {
      const auto deficit = [&](std::size_t k) {
        return weights[k] * std::max<std::int64_t>(i, 1) - drawn[k] * total;
      };
      if (deficit(j) > deficit(best)) best = j;
    }
    ++drawn[best];
    order.push_back(static_cast<int>(best));
  }
  return order;
}

TEST(Interleave, DrawsTheLargestDeficitAsMegatronDoes) {
  const auto order = [](const std::vector<double>& weights, int samples) {
    Interleave interleave(weights);
    std::vector<int> all;
    for (int i = 0; i < samples; ++i) all.push_back(interleave.at(i).source);
    return all;
  };
  EXPECT_EQ(order({1, 1}, 6), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(order({3, 2, 1}, 600), reference_order({3, 2, 1}, 600));
  EXPECT_EQ(order({0.7, 0.3}, 1000), reference_order({7, 3}, 1000));
  EXPECT_EQ(order({0.1, 0.2, 0.3, 0.05}, 1000), reference_order({10, 20, 30, 5}, 1000));
  EXPECT_EQ(order({1e-3, 3e6}, 1000), reference_order({1, 3000000000}, 1000));
  // A source of weight 0 is never drawn, not even if all deficits are equal.
  EXPECT_EQ(order({0, 1}, 4), (std::vector<int>{1, 1, 1, 1}));
}

TEST(Interleave, KeepsEverySourceWithinOneSampleOfItsShareOrTwo) {
  const std::vector<double> weights = {0.6180339887498949, 0.2718281828459045, 0.11013782840420060};
  Interleave interleave(weights);
  const auto shares = interleave.shares();
  EXPECT_NEAR(shares[0], weights[0], 1e-9);
  std::vector<std::int64_t> drawn(3);
  for (std::int64_t i = 0; i < 100000; ++i) {
    const auto draw = interleave.at(i);
    EXPECT_EQ(draw.index, drawn[static_cast<std::size_t>(draw.source)]++);
    for (std::size_t j = 0; j < 3; ++j) {
      ASSERT_LT(std::abs(shares[j] * static_cast<double>(i + 1) - static_cast<double>(drawn[j])),
                2);
    }
  }
}

TEST(Interleave, JumpsForwardAndBackLandWhereWalkingDoes) {
  const std::vector<double> weights = {0.55, 0.3, 0.15};
  Interleave walk(weights);
  std::vector<Interleave::Draw> all;
  for (int i = 0; i < 5000; ++i) all.push_back(walk.at(i));
  Interleave jump(weights);
  for (const int i : {4000, 4001, 10, 10, 0, 4999, 4998}) {
    const auto draw = jump.at(i);
    EXPECT_EQ(draw.source, all[static_cast<std::size_t>(i)].source) << i;
    EXPECT_EQ(draw.index, all[static_cast<std::size_t>(i)].index) << i;
  }
  EXPECT_THROW(Interleave(std::vector<double>{1, -1}), RequestError);
  EXPECT_THROW(Interleave(std::vector<double>{0, 0}), RequestError);
  EXPECT_THROW(Interleave(std::vector<double>{}), RequestError);
  EXPECT_THROW(Interleave(std::vector<double>{std::nan("")}), RequestError);
}

TEST(Interleave, CountsTheSamplesOfEachSource) {
  const std::vector<double> weights{3, 1.5, 0, 0.25};
  Interleave walks(weights), asked(weights);
  std::vector<std::int64_t> drawn(weights.size());
  std::vector<std::vector<std::int64_t>> after{drawn};
  for (std::int64_t i = 0; i < 500; ++i) {
    ++drawn[static_cast<std::size_t>(walks.at(i).source)];
    after.push_back(drawn);
  }
  for (const std::size_t samples : {0, 1, 17, 500, 16, 499, 3}) {
    EXPECT_EQ(asked.drawn(static_cast<std::int64_t>(samples)), after[samples]) << samples;
  }
  EXPECT_EQ(Interleave(std::vector<double>{2}).drawn(7), (std::vector<std::int64_t>{7}));
}

TEST(BatchSampler, WithoutShufflingIterationKUsesItsConsecutiveSamples) {
  // The dataset has 10 samples of 4 tokens from 41 + 3. G = 6 wraps into the second epoch.
  const auto data = dataset({{44, 1}}, 4, false);
  EXPECT_EQ(data->samples_per_epoch(), 10);
  BatchSampler sampler(data, {.global_batch_size = 6, .micro_batch_size = 6});
  HostMicroBatch batch;
  sampler.fill(1, 0, batch);
  EXPECT_THAT(batch.sample_ids, ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(std::vector(batch.tokens.begin(), batch.tokens.begin() + 4),
              ElementsAre(24, 25, 26, 27));
  EXPECT_THAT(std::vector(batch.labels.begin(), batch.labels.begin() + 4),
              ElementsAre(25, 26, 27, 28));
  EXPECT_EQ(batch.tokens[3 * 4], 36);  // the last sample of epoch 0
  EXPECT_EQ(batch.labels[3 * 4 + 3], 40);
  EXPECT_EQ(batch.tokens[4 * 4], 0);  // epoch 1
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.labels[i], batch.tokens[i] + 1);
  }
}

// The middle stages of a pipeline use such a sampler, since they take activations.
TEST(BatchSampler, WithoutTokensOnlySamplesAreNumbered) {
  class Unread : public Counting {
   public:
    Unread() : Counting(44, 0) {}
    void read(std::int64_t, std::span<std::int32_t>) const override { FAIL() << "was read"; }
  };
  const auto data = std::make_shared<Dataset>(
      std::vector<DataPart>{{std::make_shared<Unread>(), 0, 44, 1}}, 4, SampleOrder{});
  BatchSampler sampler(data, {.global_batch_size = 4, .micro_batch_size = 2, .tokens = false});
  HostMicroBatch batch;
  sampler.fill(2, 1, batch);
  EXPECT_THAT(batch.sample_ids, ElementsAre(10, 11));
  EXPECT_TRUE(batch.tokens.empty() && batch.labels.empty());
}

// Tokens 0, 1, 2, … whose documents begin at 3, 4, 9 and 17.
class WithDocuments : public Counting {
 public:
  WithDocuments() : Counting(41, 0) {}
  bool has_documents() const override { return true; }
  std::vector<std::int64_t> document_edges(std::int64_t begin, std::int64_t end) const override {
    std::vector<std::int64_t> edges;
    for (const std::int64_t edge : {3, 4, 9, 17, 41}) {
      if (edge > begin && edge <= end) edges.push_back(edge);
    }
    return edges;
  }
};

TEST(BatchSampler, SeparatesSamplesIntoDocuments) {
  const auto data = [](DocumentBorders borders, std::shared_ptr<const TokenSource> source) {
    return std::make_shared<Dataset>(std::vector<DataPart>{{std::move(source), 0, 41, 1}}, 8,
                                     SampleOrder{.shuffle = false}, borders);
  };
  HostMicroBatch batch;
  const auto fill = [&](DocumentBorders borders, int place, bool tokens,
                        std::shared_ptr<const TokenSource> source) {
    BatchSampler sampler(data(borders, std::move(source)), {.global_batch_size = 4,
                                                            .micro_batch_size = 1,
                                                            .place = place,
                                                            .places = 2,
                                                            .tokens = tokens});
    sampler.fill(0, 0, batch);
  };
  const auto known = std::make_shared<WithDocuments>();
  fill({.wanted = true, .mask_labels = true}, 0, true, known);  // sample 0; the other place has 2
  EXPECT_THAT(batch.tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, -1, -1, 5, 6, 7, 8));
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 0, 0, 3, 4, 4, 4, 4));
  EXPECT_EQ(batch.counted, 16 - 2 - 1);
  fill({.wanted = true, .mask_labels = true}, 1, true, known);
  EXPECT_THAT(batch.labels, ElementsAre(-1, 18, 19, 20, 21, 22, 23, 24));
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(batch.counted, 13);
  // A stage without tokens has the borders, too.
  fill({.wanted = true, .mask_labels = true}, 0, false, known);
  EXPECT_TRUE(batch.labels.empty());
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 0, 0, 3, 4, 4, 4, 4));
  EXPECT_EQ(batch.counted, 13);
  fill({.wanted = true}, 0, true, known);
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(batch.counted, -1);
  fill({}, 0, true, known);
  EXPECT_TRUE(batch.document_begins.empty());
  // One document in the source: a token ends each, and belongs to it.
  const auto unknown = std::make_shared<Counting>(41, 0);
  fill({.wanted = true, .mask_labels = true, .eod = 2}, 0, true, unknown);
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, -1, 4, 5, 6, 7, 8));
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 0, 0, 3, 3, 3, 3, 3));
  fill({.wanted = true, .mask_labels = true, .eod = 7}, 0, true, unknown);
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, -1));
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THROW(data({.wanted = true}, unknown), RequestError);
}

using Lengths = std::vector<std::int64_t>;

// Documents of these lengths, in tokens 0, 1, 2, …
class OfLengths : public Counting {
 public:
  explicit OfLengths(const Lengths& lengths)
      : Counting(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 0) {
    for (const std::int64_t length : lengths) {
      edges_.push_back((edges_.empty() ? 0 : edges_.back()) + length);
    }
  }
  bool has_documents() const override { return true; }
  std::vector<std::int64_t> document_edges(std::int64_t begin, std::int64_t end) const override {
    std::vector<std::int64_t> edges;
    std::ranges::copy_if(edges_, std::back_inserter(edges),
                         [&](std::int64_t edge) { return edge > begin && edge <= end; });
    return edges;
  }

 private:
  std::vector<std::int64_t> edges_;
};

TEST(Packing, PutsEachPieceIntoTheFullestRowThatHasRoom) {
  const auto lengths_of = [](const std::vector<std::int64_t>& edges) {
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> rows;
    for (const PackedRow& row : pack_window(edges, 10)) {
      auto& lengths = rows.emplace_back();
      for (const PackedPiece& piece : row) lengths.emplace_back(piece.begin, piece.length);
    }
    return rows;
  };
  // Lengths 4, 7, 23, 3, 6, 1: the third is cut into 10, 10 and 3.
  const std::vector<std::int64_t> edges{100, 104, 111, 134, 137, 143, 144};
  using Row = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(lengths_of(edges), (std::vector<Row>{{{111, 10}},
                                                 {{121, 10}},
                                                 {{104, 7}, {131, 3}},
                                                 {{137, 6}, {100, 4}},
                                                 {{134, 3}, {143, 1}}}));
  const auto rows = pack_window(edges, 10);
  EXPECT_TRUE(rows[0][0].continues && rows[1][0].continues);
  EXPECT_FALSE(rows[2][1].continues);
}

TEST(Packing, TakesEachTokenOnceAnEpoch) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    Lengths lengths(40 + random() % 50);
    for (std::int64_t& length : lengths) length = 1 + static_cast<std::int64_t>(random() % 60);
    const OfLengths source(lengths);
    const std::int64_t window = 1 + static_cast<std::int64_t>(random() % 40);
    // A part begins and ends within documents.
    const std::int64_t begin = 7, end = source.size() - 5, s = 32;
    const PackedDocuments packed(source, begin, end,
                                 {.sequence = s, .window = window, .most_bytes = round % 2});
    std::multiset<std::int64_t> seen;
    for (std::int64_t i = packed.rows(); i-- > 0;) {
      std::int64_t length = 0;
      for (const PackedPiece& piece : packed.row(i)) {
        length += piece.length;
        for (std::int64_t t = 0; t < piece.length; ++t) seen.insert(piece.begin + t);
      }
      EXPECT_TRUE(length >= 1 && length <= s);
    }
    EXPECT_EQ(std::ssize(seen), end - begin);
    EXPECT_EQ(std::ssize(std::set(seen.begin(), seen.end())), end - begin);
    EXPECT_TRUE(*seen.begin() == begin && *seen.rbegin() == end - 1);
  }
}

TEST(BatchSampler, RowsOfPackedDocumentsArePadded) {
  const auto source = std::make_shared<OfLengths>(Lengths{5, 11, 2, 1});
  const auto batch_of = [&](bool mask) {
    const auto data = std::make_shared<Dataset>(
        std::vector<DataPart>{{source, 0, source->size(), 1}}, 8, SampleOrder{.shuffle = false},
        DocumentBorders{.mask_labels = mask, .window = 100});
    EXPECT_EQ(data->samples_per_epoch(), 3);  // 8 of the 11; 5 and 3; 2 and 1
    BatchSampler sampler(data, {.global_batch_size = 3, .micro_batch_size = 3});
    HostMicroBatch batch;
    sampler.fill(0, 0, batch);
    return batch;
  };
  const HostMicroBatch batch = batch_of(true);
  EXPECT_THAT(batch.tokens, ElementsAre(5, 6, 7, 8, 9, 10, 11, 12,  //
                                        0, 1, 2, 3, 4, 13, 14, 15,  //
                                        16, 17, 18, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(6, 7, 8, 9, 10, 11, 12, 13,  // the document goes on
                                        1, 2, 3, 4, -1, 14, 15, -1,  //
                                        17, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(batch.document_begins, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0,  //
                                                 0, 0, 0, 0, 0, 5, 5, 5,  //
                                                 0, 0, 2, 3, 3, 3, 3, 3));
  EXPECT_EQ(batch.counted, 8 + 6 + 1);
  const HostMicroBatch unmasked = batch_of(false);
  EXPECT_EQ(unmasked.tokens, batch.tokens);
  EXPECT_THAT(unmasked.labels, ElementsAre(6, 7, 8, 9, 10, 11, 12, 13,  //
                                           1, 2, 3, 4, 13, 14, 15, -1,  //
                                           17, 18, -1, -1, -1, -1, -1, -1));
  EXPECT_EQ(unmasked.counted, 8 + 7 + 2);
}

TEST(BatchSampler, NoLayoutChangesWhichSamplesAGlobalBatchHolds) {
  const auto data = dataset({{1000, 0.6}, {500, 0.4}}, 8, true);
  HostMicroBatch batch;
  // The tokens of each sample, by sample id.
  const auto run = [&](std::int64_t b, int size, bool reverse) {
    std::map<std::int64_t, std::vector<std::int32_t>> samples;
    for (int rank = 0; rank < size; ++rank) {
      BatchSampler sampler(data, {24, b, rank, size});
      EXPECT_EQ(sampler.micro_batches(3), 24 / (b * size));
      for (int k = 0; k < 20; ++k) {
        for (std::int64_t j = 0; j < sampler.micro_batches(k); ++j) {
          sampler.fill(reverse ? 19 - k : k, j, batch);
          for (std::int64_t row = 0; row < b; ++row) {
            const auto begin = batch.tokens.begin() + row * 8;
            samples[batch.sample_ids[static_cast<std::size_t>(row)]].assign(begin, begin + 8);
          }
        }
      }
    }
    return samples;
  };
  const auto truth = run(24, 1, false);
  ASSERT_EQ(truth.size(), 480u);
  EXPECT_EQ(run(1, 1, false), truth);
  EXPECT_EQ(run(3, 4, false), truth);
  EXPECT_EQ(run(2, 3, true), truth);

  BatchSampler second(data, {24, 2, 1, 3});
  second.fill(5, 2, batch);
  EXPECT_THAT(batch.sample_ids, ElementsAre(5 * 24 + 8 + 4, 5 * 24 + 8 + 5));
  EXPECT_THROW(BatchSampler(data, {24, 5, 0, 1}), RequestError);
  EXPECT_THROW(second.fill(0, 4, batch), Error);
}

TEST(BatchSampler, ShufflingTakesEachSampleOnceAnEpochByTheSeedAlone) {
  const auto order = [](std::uint64_t seed) {
    BatchSampler sampler(dataset({{801, 1}}, 8, true, seed), {10, 10, 0, 1});
    std::vector<std::int32_t> starts;
    HostMicroBatch batch;
    for (int k = 0; k < 20; ++k) {
      sampler.fill(k, 0, batch);
      for (std::size_t row = 0; row < 10; ++row) starts.push_back(batch.tokens[row * 8]);
    }
    return starts;
  };
  const auto one = order(1);
  const std::vector first(one.begin(), one.begin() + 100), second(one.begin() + 100, one.end());
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 100u);
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
  EXPECT_EQ(order(1), one);
  EXPECT_NE(order(2), one);
}

// PipeDream's ranks ask for micro-batches of later iterations, and later for the same ones again.
TEST(Interleave, GoingBackDrawsInProportionToTheWayBack) {
  const std::vector<double> weights{0.3, 0.1, 0.6};
  Interleave straight(weights), seeking(weights);
  std::vector<Interleave::Draw> draws;
  for (std::int64_t i = 0; i < 20'000; ++i) draws.push_back(straight.at(i));
  EXPECT_EQ(straight.steps(), 20'000);
  const auto expect_draw = [&](std::int64_t i) {
    const Interleave::Draw draw = seeking.at(i);
    const Interleave::Draw& known = draws[static_cast<std::size_t>(i)];
    ASSERT_EQ(draw.source, known.source) << i;
    ASSERT_EQ(draw.index, known.index) << i;
  };
  // The ranks run 1,000 iterations of 16 samples and look 40 samples ahead.
  for (std::int64_t begin = 0; begin < 16'000; begin += 16) {
    for (std::int64_t i = begin; i < begin + 56; ++i) expect_draw(i);
  }
  EXPECT_LT(seeking.steps(), 1'000 * (56 + 4 * 40 + 64));
  // Steps back of any length, in any order.
  for (const std::int64_t to : {19'999, 19'998, 19'900, 19'990, 12'345, 12'000, 17, 0, 15'000, 3}) {
    expect_draw(to);
  }
  // Short steps back after a long one.
  expect_draw(19'999);
  expect_draw(10'000);
  const std::int64_t steps = seeking.steps();
  for (int i = 0; i < 100; ++i) {
    expect_draw(10'040);
    expect_draw(10'000);
  }
  EXPECT_LT(seeking.steps() - steps, 100 * (4 * 40 + 64));
}

}  // namespace
}  // namespace trident
