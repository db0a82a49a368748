#include "kernels/cross_entropy.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

class CrossEntropyTest : public KernelTest {
 protected:
  static constexpr std::int64_t tokens = 7;

  static Values labels(std::int64_t vocabulary) {
    Values values;
    for (std::int64_t t = 0; t < tokens; ++t) {
      values.push_back(static_cast<double>(t * 11 % vocabulary));
    }
    return values;
  }
  // The losses of torch.nn.CrossEntropyLoss(label_smoothing), one for each token.
  static Values losses(const Values& logits, const Values& label, double smoothing) {
    const std::int64_t v = static_cast<std::int64_t>(logits.size()) / tokens;
    Values out;
    for (std::int64_t t = 0; t < tokens; ++t) {
      double total = 0, mean = 0;
      for (std::int64_t i = 0; i < v; ++i) total += std::exp(reference::at(logits, t * v + i));
      for (std::int64_t i = 0; i < v; ++i) {
        mean += (std::log(total) - reference::at(logits, t * v + i)) / static_cast<double>(v);
      }
      const auto target = static_cast<std::int64_t>(reference::at(label, t));
      out.push_back((1 - smoothing) * (std::log(total) - reference::at(logits, t * v + target)) +
                    (smoothing > 0 ? smoothing * mean : 0));
    }
    return out;
  }

  struct Slice {
    CrossEntropyShape shape;
    Tensor logits, maximum, statistics;
  };
  // Two slices of `width` columns each; the second one may be all padding.
  std::vector<Slice> sliced(const Values& logits, std::int64_t vocabulary, std::int64_t width,
                            float smoothing) {
    std::vector<Slice> slices;
    for (const std::int64_t begin : {std::int64_t{0}, width}) {
      const std::int64_t valid = std::max<std::int64_t>(0, std::min(width, vocabulary - begin));
      Values part(static_cast<std::size_t>(tokens * width), 1e9);  // padding must not matter
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < valid; ++i) {
          reference::at(part, t * width + i) = reference::at(logits, t * vocabulary + begin + i);
        }
      }
      slices.push_back({{begin, valid, vocabulary, smoothing},
                        put(part, {tokens, width}),
                        empty_f32({tokens}),
                        empty_f32({3, tokens})});
    }
    return slices;
  }
};

// A GPU may read rows of another width in other packs, but the sums must be the same. These rows
// are longer than the part that a GPU keeps in shared memory.
TEST_P(CrossEntropyTest, PaddingChangesNoBit) {
  constexpr std::int64_t valid = 60005;
  const Values logits = random(tokens * valid, "logits", 3);
  const Tensor label = put_as(DType::i32, labels(valid), {tokens});
  std::vector<Values> found;
  for (const std::int64_t width : {valid, std::int64_t{60008}, std::int64_t{61440}}) {
    Values padded(static_cast<std::size_t>(tokens * width), 1e9);
    for (std::int64_t i = 0; i < tokens * valid; ++i) {
      reference::at(padded, i / valid * width + i % valid) = reference::at(logits, i);
    }
    const CrossEntropyShape shape{0, valid, valid, 0.1f};
    const Tensor x = put(padded, {tokens, width}), maximum = empty_f32({tokens}),
                 statistics = empty_f32({3, tokens});
    cross_entropy_maximum(context, shape, x, maximum);
    cross_entropy_statistics(context, shape, x, label, maximum, statistics);
    const Tensor loss = empty_f32({tokens});
    cross_entropy(context, shape, x, label, loss, 1.0f);
    Values all = get(statistics), gradient = get(x);
    for (const double value : get(loss)) all.push_back(value);
    for (std::int64_t i = 0; i < tokens * width; ++i) {
      if (i % width < valid) all.push_back(reference::at(gradient, i));
    }
    found.push_back(std::move(all));
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[1], found[2]);
}

TEST_P(CrossEntropyTest, SlicesOfAPaddedVocabularyGiveTheFullLossAndGradient) {
  for (const std::int64_t vocabulary : {2, 3, 17, 130}) {
    for (const float smoothing : {0.0f, 0.2f}) {
      const Values logits = random(tokens * vocabulary, "logits", 3), label = labels(vocabulary);
      const std::int64_t width = vocabulary / 2 + 5;
      const std::vector<Slice> slices = sliced(logits, vocabulary, width, smoothing);
      const Tensor label_tensor = put_as(DType::i32, label, {tokens});
      Values maximum(tokens, -INFINITY), statistics(3 * tokens, 0.0);
      for (const Slice& s : slices) {
        cross_entropy_maximum(context, s.shape, s.logits, s.maximum);
        const Values got = get(s.maximum);
        for (std::size_t t = 0; t < tokens; ++t) maximum[t] = std::max(maximum[t], got[t]);
      }
      const Tensor global_maximum = put_as(DType::f32, maximum, {tokens});
      for (const Slice& s : slices) {
        cross_entropy_statistics(context, s.shape, s.logits, label_tensor, global_maximum,
                                 s.statistics);
        const Values got = get(s.statistics);
        for (std::size_t i = 0; i < got.size(); ++i) statistics[i] += got[i];
      }
      const Tensor sums = put_as(DType::f32, statistics, {3, tokens}), loss = empty_f32({tokens});
      cross_entropy_losses(context, slices[0].shape, sums, loss);
      expect_near(loss, losses(logits, label, smoothing), "losses", 2e-6);

      const double scale = 0.25;
      const Values want =
          reference::numeric_gradient([&](const Values& v) { return losses(v, label, smoothing); },
                                      logits, Values(tokens, scale));
      Values gradient(want.size(), NAN);
      for (const Slice& s : slices) {
        cross_entropy_gradient(context, s.shape, s.logits, label_tensor, global_maximum, sums,
                               static_cast<float>(scale));
        const Values got = get(s.logits);
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t i = 0; i < width; ++i) {
            const double value = reference::at(got, t * width + i);
            if (i < s.shape.valid) {
              reference::at(gradient, t * vocabulary + s.shape.begin + i) = value;
            } else {
              EXPECT_EQ(value, 0.0);
            }
          }
        }
      }
      EXPECT_LT(relative_error(gradient, want), dtype == DType::f32 ? 5e-6 : tolerance)
          << vocabulary << " " << smoothing;
    }
  }
}

TEST_P(CrossEntropyTest, UnshardedRowsGiveLossAndGradientAtOnce) {
  // The sizes range from at most one value a thread to more than one pass of a block on a GPU. Some
  // are about as long as the rows that the emulated GPU keeps in shared memory, 7168 or 14336
  // values.
  for (const std::int64_t vocabulary : {1, 3, 130, 4099, 7001, 7168, 14003, 14336, 20011}) {
    for (const float smoothing : {0.0f, 0.2f}) {
      // The width is odd, or a multiple of a pack.
      const std::int64_t width = smoothing > 0 ? vocabulary + 3 : (vocabulary / 8 + 1) * 8;
      const Values logits = random(tokens * vocabulary, "logits", 3), label = labels(vocabulary);
      const Values want = losses(logits, label, static_cast<double>(smoothing));
      const double scale = 0.25;
      Values padded(static_cast<std::size_t>(tokens * width), 1e9), gradient = padded;
      for (std::int64_t t = 0; t < tokens; ++t) {
        double total = 0;
        for (std::int64_t i = 0; i < vocabulary; ++i) {
          total += std::exp(reference::at(logits, t * vocabulary + i));
        }
        for (std::int64_t i = 0; i < width; ++i) {
          if (i >= vocabulary) {
            reference::at(gradient, t * width + i) = 0;
            continue;
          }
          const double x = reference::at(logits, t * vocabulary + i);
          const bool here = i == static_cast<std::int64_t>(reference::at(label, t));
          reference::at(padded, t * width + i) = x;
          reference::at(gradient, t * width + i) =
              scale * (std::exp(x) / total - (here ? 1 - static_cast<double>(smoothing) : 0) -
                       static_cast<double>(smoothing) / static_cast<double>(vocabulary));
        }
      }
      const CrossEntropyShape shape{0, vocabulary, vocabulary, smoothing};
      const Tensor x = put(padded, {tokens, width}), loss = empty_f32({tokens}),
                   label_tensor = put_as(DType::i32, label, {tokens});
      cross_entropy(context, shape, x, label_tensor, loss, std::nullopt);
      if (vocabulary > 1) expect_near(loss, want, "losses alone", 2e-6);
      EXPECT_EQ(get(x), get(put(padded, {tokens, width})));
      cross_entropy(context, shape, x, label_tensor, loss, static_cast<float>(scale));
      if (vocabulary > 1) expect_near(loss, want, "losses", 2e-6);
      if (vocabulary > 1)
        expect_near(x, gradient, "gradient", dtype == DType::f32 ? 5e-6 : tolerance);
      const Values got = get(x);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = vocabulary; i < width; ++i) {
          EXPECT_EQ(reference::at(got, t * width + i), 0.0);
        }
      }
      if (vocabulary == 1) {
        EXPECT_EQ(get(loss), Values(tokens, 0.0));
      }
    }
  }
  EXPECT_THROW(cross_entropy(context, {4, 5, 9, 0}, empty({tokens, 5}),
                             put_as(DType::i32, labels(5), {tokens}), empty_f32({tokens}), 1.0f),
               Error);
}

// The other rows keep their bits, in one call and in the steps of two slices of the vocabulary.
TEST_P(CrossEntropyTest, ALabelBelowZeroGivesNoLossAndNoGradient) {
  constexpr std::int64_t vocabulary = 37, width = 20;
  const Values logits = random(tokens * vocabulary, "logits", 3), all = labels(vocabulary);
  Values some = all;
  for (const std::size_t t : {0, 3, 4}) some[t] = t == 3 ? -100 : -1;
  const auto counts = [&](std::int64_t t) { return reference::at(some, t) >= 0; };
  const auto expect_rows = [&](const Values& got, const Values& want, std::int64_t columns) {
    for (std::int64_t i = 0; i < tokens * columns; ++i) {
      EXPECT_EQ(reference::at(got, i), counts(i / columns) ? reference::at(want, i) : 0) << i;
    }
  };
  for (const float smoothing : {0.0f, 0.1f}) {
    std::vector<Values> losses, gradients;
    for (const Values& label : {all, some}) {
      const Tensor x = put(logits, {tokens, vocabulary}), loss = empty_f32({tokens});
      const Tensor of = put_as(DType::i32, label, {tokens});
      cross_entropy(context, {0, vocabulary, vocabulary, smoothing}, x, of, loss, 0.5f);
      losses.push_back(get(loss));
      gradients.push_back(get(x));
      const std::vector<Slice> slices = sliced(logits, vocabulary, width, smoothing);
      Values sums(3 * tokens, 0.0);
      const Tensor maximum = put_as(DType::f32, Values(tokens, 3), {tokens});
      for (const Slice& s : slices) {
        cross_entropy_statistics(context, s.shape, s.logits, of, maximum, s.statistics);
        const Values got = get(s.statistics);
        for (std::size_t i = 0; i < got.size(); ++i) sums[i] += got[i];
      }
      const Tensor total = put_as(DType::f32, sums, {3, tokens});
      cross_entropy_losses(context, slices[0].shape, total, loss);
      losses.push_back(get(loss));
      for (const Slice& s : slices) {
        cross_entropy_gradient(context, s.shape, s.logits, of, maximum, total, 0.5f);
        gradients.push_back(get(s.logits));
      }
    }
    for (std::size_t i = 0; i < 2; ++i) expect_rows(losses[2 + i], losses[i], 1);
    for (std::size_t i = 0; i < 3; ++i) {
      expect_rows(gradients[3 + i], gradients[i], i == 0 ? vocabulary : width);
    }
  }
}

// Some logits may be -infinity, also a complete pack and the first ones of a thread.
TEST_P(CrossEntropyTest, MinusInfinityCountsNothing) {
  constexpr std::int64_t columns = 5003;
  Values logits = random(tokens * columns, "logits");
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < columns; ++i) {
      if (i < 64 || i % 3 == 0) reference::at(logits, t * columns + i) = -INFINITY;
    }
    reference::at(logits, t * columns + t * 11) = 0.5;  // the label's
  }
  const Tensor loss = empty_f32({tokens});
  const Values label = labels(tokens * 11);
  cross_entropy(context, {0, columns, columns, 0}, put(logits, {tokens, columns}),
                put_as(DType::i32, label, {tokens}), loss, std::nullopt);
  expect_near(loss, losses(logits, label, 0), "losses", 2e-6);
}

TEST_P(CrossEntropyTest, ANaNLogitReachesTheLoss) {
  for (const std::int64_t bad : {0, 40}) {
    Values logits = random(tokens * 41, "logits");
    reference::at(logits, 41 + bad) = NAN;
    const CrossEntropyShape shape{0, 41, 41, 0};
    const Tensor in = put(logits, {tokens, 41}),
                 labels_tensor = put_as(DType::i32, labels(41), {tokens});
    const Tensor maximum = empty_f32({tokens}), sums = empty_f32({3, tokens}),
                 loss = empty_f32({tokens});
    cross_entropy_maximum(context, shape, in, maximum);
    cross_entropy_statistics(context, shape, in, labels_tensor, maximum, sums);
    cross_entropy_losses(context, shape, sums, loss);
    const Values got = get(loss);
    EXPECT_FALSE(std::isnan(got[0]));
    EXPECT_TRUE(std::isnan(got[1]));
    cross_entropy(context, shape, in, labels_tensor, loss, std::nullopt);
    EXPECT_FALSE(std::isnan(get(loss)[0]));
    EXPECT_TRUE(std::isnan(get(loss)[1]));
  }
}

TEST_P(CrossEntropyTest, RefusesMoreValidColumnsThanThereAre) {
  EXPECT_THROW(
      cross_entropy_maximum(context, {0, 5, 5, 0}, empty({tokens, 4}), empty_f32({tokens})), Error);
  EXPECT_THROW(
      cross_entropy_losses(context, {0, 5, 5, 0}, empty_f32({2, tokens}), empty_f32({tokens})),
      Error);
}

TRIDENT_KERNEL_SUITE(CrossEntropyTest);

}  // namespace
}  // namespace trident
