#include "kernels/routing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// The kernels on logits, which are fp32 whatever the model's type is.
std::vector<Setup> fp32_setups() {
  std::vector<Setup> setups = all_setups();
  std::erase_if(setups, [](const Setup& setup) { return setup.dtype != DType::f32; });
  return setups;
}

// The definitions of kernels/routing.h, with the choice given where it must not change.
struct Router {
  RouterShape shape;
  std::int64_t tokens, samples = 1;
  std::int64_t first_row = 0;  // of those of the samples

  std::int64_t sequence() const { return (first_row + tokens + samples - 1) / samples; }
  std::int64_t sample_of(std::int64_t t) const { return (first_row + t) / sequence(); }

  Values scores(const Values& logits, std::int64_t t) const {
    Values s;
    double sum = 0;
    for (std::int64_t e = 0; e < shape.experts; ++e) {
      const double x = std::exp(reference::at(logits, t * shape.experts + e));
      s.push_back(shape.score == RouterScore::sigmoid ? x / (1 + x) : x);
      sum += x;
    }
    if (shape.score == RouterScore::softmax) {
      for (double& x : s) x /= sum;
    }
    return s;
  }

  // By definition, with a full sort by value and then by number.
  std::vector<std::int32_t> choice(const Values& logits, const Values& bias) const {
    std::vector<std::int32_t> all;
    for (std::int64_t t = 0; t < tokens; ++t) {
      Values by = scores(logits, t);
      for (std::size_t e = 0; !bias.empty() && e < by.size(); ++e) by[e] += bias[e];
      const auto size = static_cast<std::size_t>(shape.experts / shape.groups);
      if (shape.groups > 1) {
        Values sums;
        for (std::size_t g = 0; g < static_cast<std::size_t>(shape.groups); ++g) {
          Values group(by.begin() + static_cast<std::ptrdiff_t>(g * size),
                       by.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
          std::sort(group.rbegin(), group.rend());
          sums.push_back(group[0] + group[1]);
        }
        const std::vector<std::int32_t> kept = largest(sums, shape.group_topk);
        for (std::size_t e = 0; e < by.size(); ++e) {
          if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) by[e] = -INFINITY;
        }
      }
      std::vector<std::int32_t> own = largest(by, shape.topk);
      std::sort(own.begin(), own.end());
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  static std::vector<std::int32_t> largest(const Values& values, std::int64_t count) {
    std::vector<std::int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(count));
    return order;
  }

  // Weights (T, K), then probabilities (T, E), then squares (T).
  Values results(const Values& logits, const std::vector<std::int32_t>& chosen) const {
    Values weights, probabilities, squares;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Values s = scores(logits, t);
      double own = 0, all = 0, sum = 0;
      const auto expert = [&](std::int64_t k) {
        return static_cast<std::size_t>(chosen[static_cast<std::size_t>(t * shape.topk + k)]);
      };
      for (std::int64_t k = 0; k < shape.topk; ++k) own += s[expert(k)];
      for (std::int64_t k = 0; k < shape.topk; ++k) {
        weights.push_back(s[expert(k)] / (shape.normalized ? own : 1) * shape.scaling);
      }
      for (const double x : s) all += x;
      for (const double x : s) probabilities.push_back(x / all);
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        sum += std::exp(reference::at(logits, t * shape.experts + e));
      }
      squares.push_back(std::log(sum) * std::log(sum));
    }
    weights.insert(weights.end(), probabilities.begin(), probabilities.end());
    weights.insert(weights.end(), squares.begin(), squares.end());
    return weights;
  }
};

std::vector<Router> routers() {
  std::vector<Router> list;
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    for (const bool normalized : {false, true}) {
      list.push_back({{.experts = 5, .topk = 2, .score = score, .normalized = normalized}, 6, 2});
      list.push_back({{.experts = 12,
                       .topk = 3,
                       .score = score,
                       .normalized = normalized,
                       .scaling = 2.5,
                       .groups = 4,
                       .group_topk = 2},
                      9,
                      3});
    }
  }
  list.push_back({{.experts = 3, .topk = 3, .normalized = true}, 4});  // every expert
  list.push_back({{.experts = 1, .topk = 1}, 2});
  list.push_back({{.experts = 130, .topk = 9}, 6, 2});
  list.push_back({{.experts = 64, .topk = 6}, 3});
  list.push_back({{.experts = 4, .topk = 2}, 200});  // more tokens than are added at once
  list.push_back({{.experts = 80, .topk = 5, .groups = 2, .group_topk = 1}, 5});
  // Three of a sample's four tokens, all of the next one's, and two of the last one's.
  list.push_back({{.experts = 4, .topk = 2, .score = RouterScore::sigmoid}, 9, 3, 1});
  return list;
}

class RoutingTest : public KernelTest {
 protected:
  struct Routed {
    Tensor logits, experts, weights;
  };
  Routed run(const Router& router, const Values& logits, const Values& bias = {}) {
    const auto& [shape, tokens, samples, first_row] = router;
    Routed r{put(logits, {tokens, shape.experts}),
             context.empty({tokens, shape.topk}, DType::i32, Category::activation),
             empty_f32({tokens, shape.topk})};
    route(context, {.shape = shape,
                    .logits = r.logits,
                    .bias = bias.empty() ? Tensor() : put(bias, {shape.experts}),
                    .experts = r.experts,
                    .weights = r.weights});
    return r;
  }
  std::vector<std::int32_t> chosen(const Routed& r) {
    return context.to_host<std::int32_t>(r.experts);
  }
};

TEST_P(RoutingTest, TokensTakeTheExpertsAndWeightsOfTheDefinition) {
  for (const Router& router : routers()) {
    const auto& [shape, tokens, samples, first_row] = router;
    const Values logits = random(tokens * shape.experts, "logits", 2);
    for (const bool biased : {false, true}) {
      const Values bias = biased ? random(shape.experts, "bias", 0.3) : Values();
      const Routed r = run(router, logits, bias);
      const std::vector<std::int32_t> want = router.choice(logits, bias);
      EXPECT_EQ(chosen(r), want) << shape.experts;
      Values results = router.results(logits, want);
      results.resize(want.size());
      expect_near(r.weights, results, "weights");
    }
  }
}

TEST_P(RoutingTest, EqualScoresGoToTheLowestExpert) {
  const Router six{{.experts = 6, .topk = 3}, 2};
  EXPECT_THAT(chosen(run(six, Values(12, 0.5))), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(chosen(run(six, {0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 1})),
              ElementsAre(0, 1, 3, 0, 4, 5));
  // So do equal groups: of the sums 3, 3 and 1 with biases, the first two.
  const Router grouped{
      {.experts = 6, .topk = 2, .score = RouterScore::sigmoid, .groups = 3, .group_topk = 1}, 1};
  EXPECT_THAT(chosen(run(grouped, Values(6, 0), {1, 1, 1, 1, 0, 0})), ElementsAre(0, 1));
  EXPECT_THAT(chosen(run(grouped, Values(6, 0), {0, 0, 1, 1, 1, 1})), ElementsAre(2, 3));
}

// A token that has become NaN takes experts that exist, so that the loss shows the NaN.
TEST_P(RoutingTest, NaNsAndInfinitiesTakeExpertsThatExist) {
  for (const double value : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
      const Router router{{.experts = 8, .topk = 3, .score = score, .groups = 4, .group_topk = 2},
                          1};
      std::vector<std::int32_t> own = chosen(run(router, Values(8, value)));
      const Routed one =
          run({{.experts = 4, .topk = 1, .score = RouterScore::sigmoid}, 1}, {1, 2, NAN, 3});
      EXPECT_THAT(chosen(one), ElementsAre(2)) << "so that the loss shows the NaN";
      EXPECT_TRUE(std::all_of(own.begin(), own.end(), [](int e) { return e >= 0 && e < 8; }));
      EXPECT_EQ(std::unique(own.begin(), own.end()), own.end());
    }
  }
}

TEST_P(RoutingTest, GradientsMatchNumericOnes) {
  for (const Router& router : routers()) {
    const auto& [shape, tokens, samples, first_row] = router;
    const Values logits = random(tokens * shape.experts, "logits");
    const Routed r = run(router, logits);
    const Values grad_weights = random(tokens * shape.topk, "grad_weights");
    const Values of_samples = random(samples * shape.experts, "grad_probabilities");
    for (const bool balanced : {false, true}) {
      const float grad_square = balanced ? 0.25f : 0;
      Values grad = grad_weights;
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t e = 0; e < shape.experts; ++e) {
          const std::int64_t at = router.sample_of(t) * shape.experts + e;
          grad.push_back(balanced ? reference::at(of_samples, at) : 0);
        }
      }
      grad.insert(grad.end(), static_cast<std::size_t>(tokens), grad_square);
      const std::vector<std::int32_t> own = chosen(r);
      const Values want = reference::numeric_gradient(
          [&](const Values& x) { return router.results(x, own); }, logits, grad);
      const Tensor grad_logits = empty_f32({tokens, shape.experts});
      route_backward(context, {.shape = shape,
                               .logits = r.logits,
                               .experts = r.experts,
                               .grad_weights = put(grad_weights, {tokens, shape.topk}),
                               .grad_probabilities =
                                   balanced ? put(of_samples, {samples, shape.experts}) : Tensor(),
                               .sequence = router.sequence(),
                               .first_row = first_row,
                               .grad_square = grad_square,
                               .grad_logits = grad_logits});
      if (shape.experts == 1 && shape.score == RouterScore::softmax && !balanced) {
        EXPECT_THAT(get(grad_logits), testing::Each(testing::DoubleNear(0, 1e-6)));
      } else {
        expect_near(grad_logits, want, "grad_logits", 2e-6);
      }
    }
  }
}

// Mixtral's router with one expert a token learns nothing from the tokens' losses.
TEST_P(RoutingTest, ASingleNormalizedWeightHasNoGradient) {
  const Router router{{.experts = 8, .topk = 1, .normalized = true, .scaling = 1}, 50};
  const Routed r = run(router, random(400, "logits"));
  EXPECT_EQ(get(r.weights), Values(50, 1));
  const Tensor grad_logits = empty_f32({50, 8});
  route_backward(context, {.shape = router.shape,
                           .logits = r.logits,
                           .experts = r.experts,
                           .grad_weights = put(random(50, "grad_weights"), {50, 1}),
                           .grad_logits = grad_logits});
  EXPECT_THAT(get(grad_logits), testing::Each(0));
}

// A bias may choose experts whose scores are 0.
TEST_P(RoutingTest, WeightsOfScoresOfZeroAreNumbers) {
  const Router router{{.experts = 3, .topk = 2, .normalized = true}, 1};
  const Routed r = run(router, {0, -200, -200}, {-2, 0, 0});
  EXPECT_THAT(chosen(r), ElementsAre(1, 2));
  EXPECT_THAT(get(r.weights), ElementsAre(0, 0));
}

// A rank may have no token.
TEST_P(RoutingTest, AcceptsARankWithoutTokens) {
  const Router router{{.experts = 4, .topk = 2}, 0};
  const Routed r = run(router, {});
  const Tensor counts = context.empty({1, 4}, DType::i64, Category::activation);
  const Tensor probabilities = context.empty({1, 4}, DType::f64, Category::activation);
  routing_sums(context, {.shape = router.shape,
                         .logits = r.logits,
                         .experts = r.experts,
                         .counts = counts,
                         .probabilities = probabilities,
                         .squares = empty_f32({0}),
                         .sequence = 3});
  EXPECT_THAT(context.to_host<std::int64_t>(counts), testing::Each(0));
  EXPECT_THAT(get(probabilities), testing::Each(0));
}

TEST_P(RoutingTest, SumsAreOfEachSample) {
  for (const Router& router : routers()) {
    const auto& [shape, tokens, samples, first_row] = router;
    const Values logits = random(tokens * shape.experts, "logits", 2);
    const Routed r = run(router, logits);
    const Tensor counts = context.empty({samples, shape.experts}, DType::i64, Category::activation);
    const Tensor probabilities =
        context.empty({samples, shape.experts}, DType::f64, Category::activation);
    const Tensor squares = empty_f32({tokens}), entropies = empty_f32({tokens});
    const Tensor reported = context.empty({shape.experts}, DType::i64, Category::activation);
    routing_sums(context, {.shape = shape,
                           .logits = r.logits,
                           .experts = r.experts,
                           .counts = counts,
                           .probabilities = probabilities,
                           .squares = squares,
                           .entropies = entropies,
                           .reported = reported,
                           .sequence = router.sequence(),
                           .first_row = first_row});
    const std::vector<std::int32_t> own = chosen(r);
    const Values results = router.results(logits, own);
    std::vector<std::int64_t> want_counts(static_cast<std::size_t>(samples * shape.experts));
    Values want(want_counts.size()), want_squares, want_entropies;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t at = router.sample_of(t) * shape.experts;
      for (std::int64_t k = 0; k < shape.topk; ++k) {
        ++want_counts[static_cast<std::size_t>(at +
                                               own[static_cast<std::size_t>(t * shape.topk + k)])];
      }
      double entropy = 0;
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        const double p = reference::at(results, tokens * shape.topk + t * shape.experts + e);
        reference::at(want, at + e) += p;
        if (p > 0) entropy -= p * std::log(p);
      }
      want_entropies.push_back(entropy);
      want_squares.push_back(reference::at(results, tokens * (shape.topk + shape.experts) + t));
    }
    EXPECT_EQ(context.to_host<std::int64_t>(counts), want_counts);
    const Tensor shares = empty_f32({samples, shape.experts});
    const Tensor losses = context.empty({samples}, DType::f64, Category::activation);
    balance(context, {.counts = counts,
                      .probabilities = probabilities,
                      .factor = 0.375,
                      .shares = shares,
                      .losses = losses});
    Values want_losses(static_cast<std::size_t>(samples)), want_shares;
    for (std::int64_t i = 0; i < samples * shape.experts; ++i) {
      want_shares.push_back(0.375 * static_cast<double>(want_counts[static_cast<std::size_t>(i)]));
      reference::at(want_losses, i / shape.experts) += want_shares.back() * reference::at(want, i);
    }
    EXPECT_EQ(get(shares), want_shares);
    expect_near(losses, want_losses, "losses", 1e-6);
    expect_near(probabilities, want, "probabilities", 1e-6);
    expect_near(squares, want_squares, "squares", 1e-6);
    expect_near(entropies, want_entropies, "entropies", 1e-6);
    Values sums(static_cast<std::size_t>(shape.experts)), want_sums(sums.size());
    const auto units = context.to_host<std::int64_t>(reported);
    for (std::size_t e = 0; e < sums.size(); ++e) {
      sums[e] = static_cast<double>(units[e]) * probability_unit;
      for (std::size_t b = 0; b < static_cast<std::size_t>(samples); ++b) {
        want_sums[e] += want[b * sums.size() + e];
      }
      EXPECT_NEAR(sums[e], want_sums[e], 1e-6 * (1 + want_sums[e]));
    }
  }
}

TEST_P(RoutingTest, BiasesMoveTowardsTheMeanCount) {
  // The mean of three is 7/3, that of the others whole: an expert that has it stays.
  for (const auto& [counts, signs] :
       {std::pair(Values{2, 3, 2}, Values{1, -1, 1}), std::pair(Values{4, 1, 7}, Values{0, 1, -1}),
        std::pair(Values(40, 5), Values(40, 0))}) {
    const auto experts = static_cast<std::int64_t>(counts.size());
    const Values before = random(experts, "bias");
    const Tensor bias = put(before, {experts});
    update_expert_bias(
        context, {.counts = put_as(DType::i64, counts, {experts}), .bias = bias, .rate = 0.125f});
    Values want;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      want.push_back(static_cast<float>(before[e]) + static_cast<float>(signs[e]) * 0.125f);
    }
    EXPECT_EQ(get(bias), want);
  }
}

TEST_P(RoutingTest, ShapesThatDoNotFitAreRefused) {
  const auto refused = [&](const RouterShape& shape, const char* text) {
    EXPECT_THAT(
        [&] {
          run({shape, 2}, Values(static_cast<std::size_t>(2 * shape.experts)));
        },
        ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused({.experts = 4, .topk = 5}, "got 5 experts a token, need 1 to 4");
  refused({.experts = 4, .topk = 3, .groups = 2, .group_topk = 1}, "need 1 to 2");
  refused({.experts = 4, .topk = 1, .groups = 3}, "need a divisor of the number of experts");
  refused({.experts = 4, .topk = 1, .groups = 4}, "need two or more in a group");
  refused({.experts = 4, .topk = 1, .groups = 2, .group_topk = 3},
          "need 1 to the number of groups");
}

INSTANTIATE_TEST_SUITE_P(Kernels, RoutingTest, testing::ValuesIn(fp32_setups()), name_of_setup);

}  // namespace
}  // namespace trident
