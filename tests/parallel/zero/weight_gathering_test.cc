// Tests ZeRO stage 3's gathering of weights: which weights are present, when they are requested,
// and their cost.
#include "parallel/zero/weight_gathering.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/transport/transport.h"

namespace trident {
namespace {

constexpr int kRanks = 3;

std::shared_ptr<Parameter> parameter(const std::string& name, std::int64_t elements) {
  return std::make_shared<Parameter>(
      ParameterSpec{.name = name, .placement = Placement::replicated({elements})});
}

// Modules of three sizes, and a small vector that stays replicated.
struct Model {
  std::vector<std::shared_ptr<Parameter>> parameters{parameter("a", 1000), parameter("b", 500),
                                                     parameter("c", 200), parameter("v", 7)};
  std::vector<ParameterGroup> groups{
      {parameters[0]}, {parameters[1]}, {parameters[2], parameters[3]}};
};

float value(const Parameter& p, std::int64_t i) {
  return static_cast<float>(p.name()[0] * 10'000 + i);
}

class Gathering {
 public:
  Gathering(Transport& transport, Device& device, bool overlap, std::int64_t prefetch)
      : context(device, 1),
        topology(make_topology(transport.world(), Mesh(axes()), transport.nodes())),
        data(topology.of(Group::shard)),
        buckets(context, model.groups,
                {.zero_stage = 3,
                 .limits = {.elements = 5000, .persistence_threshold = 50, .axes = axes()}},
                topology),
        weights(buckets, overlap, prefetch) {
    for (const auto& p : model.parameters) {
      std::vector<float> values(static_cast<std::size_t>(p->spec().placement.numel()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = value(*p, static_cast<std::int64_t>(i));
      buckets.set(
          context, *p,
          context.from_host<float>({p->spec().placement.numel()}, values, Category::workspace));
    }
    context.synchronize();
  }
  std::vector<std::size_t> of(int index) {
    return weights.buckets_of({model.parameters[static_cast<std::size_t>(index)]});
  }
  bool is_gathered(int index) {
    const Parameter& p = *model.parameters[static_cast<std::size_t>(index)];
    if (!p.weight()) return false;
    const std::vector<float> values = context.to_host<float>(p.weight());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != value(p, static_cast<std::int64_t>(i))) return false;
    }
    return std::ssize(values) == p.spec().placement.numel();
  }
  std::int64_t gathered_bytes() {
    context.synchronize();  // pending work keeps its tensors
    return context.ledger().figures().current[static_cast<std::size_t>(Category::communication)];
  }
  std::int64_t operations() { return data.traffic().operations; }

  Model model;
  static std::vector<MeshAxis> axes() {
    return {{.name = "dp", .size = kRanks, .groups = {Group::shard}}};
  }

  Context context;
  Topology topology;
  ProcessGroup data;
  ParameterBuckets buckets;
  WeightGathering weights;
};

void on_each(bool overlap, std::int64_t prefetch, const std::function<void(Gathering&)>& body) {
  for (const bool guarded : {false, true}) {
    run_local(kRanks, {}, [&](Transport& transport) {
      const auto device = guarded ? make_guarded_device(std::size_t{64} << 20) : make_cpu_device();
      Gathering gathering(transport, *device, overlap, prefetch);
      body(gathering);
    });
  }
}

TEST(WeightGathering, WeightsAreGatheredWhileAUseLastsAndNoLonger) {
  on_each(true, 1'000'000, [](Gathering& g) {
    EXPECT_TRUE(g.of(3).empty());  // persistent
    EXPECT_TRUE(g.is_gathered(3));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(g.of(i).size(), 1u);
      EXPECT_FALSE(g.model.parameters[static_cast<std::size_t>(i)]->weight());
    }
    g.weights.hold(g.context, g.of(0));
    EXPECT_TRUE(g.is_gathered(0));
    EXPECT_FALSE(g.model.parameters[1]->weight());
    // 1,000 elements are padded to shards of full blocks: 1,152.
    EXPECT_EQ(g.gathered_bytes(), 1152 * 4);
    g.weights.hold(g.context, g.of(0));  // again: the gathered weights are used
    EXPECT_EQ(g.operations(), 1);
    g.weights.release(g.of(0));
    EXPECT_TRUE(g.is_gathered(0));
    g.weights.release(g.of(0));
    EXPECT_FALSE(g.model.parameters[0]->weight());
    EXPECT_EQ(g.gathered_bytes(), 0);
  });
}

TEST(WeightGathering, TheWeightsOfTheNextUseArePrefetched) {
  on_each(true, 1'000'000, [](Gathering& g) {
    g.weights.hold(g.context, g.of(0));
    EXPECT_EQ(g.operations(), 1);
    g.weights.prefetch(g.context, g.of(1));
    EXPECT_EQ(g.operations(), 2);                     // begun
    EXPECT_FALSE(g.model.parameters[1]->weight());    // but not usable before hold()
    EXPECT_EQ(g.gathered_bytes(), (1152 + 576) * 4);  // of two uses at most
    g.weights.release(g.of(0));
    EXPECT_EQ(g.gathered_bytes(), 576 * 4);
    g.weights.hold(g.context, g.of(1));
    EXPECT_TRUE(g.is_gathered(1));
    EXPECT_EQ(g.operations(), 2);
    // Backward begins where forward ended, so the same weights stay gathered.
    g.weights.prefetch(g.context, g.of(1));
    g.weights.release(g.of(1));
    EXPECT_FALSE(g.model.parameters[1]->weight());
    g.weights.hold(g.context, g.of(1));
    EXPECT_TRUE(g.is_gathered(1));
    EXPECT_EQ(g.operations(), 2);
    g.weights.release(g.of(1));
    EXPECT_EQ(g.gathered_bytes(), 0);
  });
}

TEST(WeightGathering, NothingIsPrefetchedBeyondTheLimitOrWithoutOverlap) {
  const auto body = [](Gathering& g) {
    g.weights.hold(g.context, g.of(2));
    g.weights.prefetch(g.context, g.of(0));
    EXPECT_EQ(g.operations(), 1);
    g.weights.release(g.of(2));
    g.weights.hold(g.context, g.of(0));
    EXPECT_TRUE(g.is_gathered(0));
    EXPECT_EQ(g.operations(), 2);
    g.weights.release(g.of(0));
  };
  on_each(true, 1151, body);
  on_each(false, 1'000'000, body);
}

}  // namespace
}  // namespace trident
