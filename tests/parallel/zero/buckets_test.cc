// Tests that buckets carry the groups of their parameters. Parameters that other ranks share lie in
// separate buckets, are reduced over those ranks and gathered from them.
#include "parallel/zero/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "parallel/transport/transport.h"
#include "parallel/zero/gradient_reduction.h"
#include "parallel/zero/weight_gathering.h"

namespace trident {
namespace {

// The mesh has two axes of ranks that see different samples. Usual parameters are sharded over the
// first axis and replicated along the second. The other parameters are called experts, since theirs
// are sharded the other way round.
std::vector<MeshAxis> axes() {
  return {{.name = "dp", .size = 3, .groups = {Group::batch, Group::loss, Group::shard}},
          {.name = "rp", .size = 2, .groups = {Group::batch, Group::loss, Group::replicas}}};
}
constexpr DataGroups experts{.shard = Group::replicas, .replicas = Group::shard};

std::shared_ptr<Parameter> make_parameter(const std::string& name, std::int64_t elements,
                                          DataGroups data = {}) {
  Placement placement = Placement::replicated({elements});
  placement.data = data;
  return std::make_shared<Parameter>(ParameterSpec{.name = name, .placement = placement});
}

TEST(Buckets, HoldParametersThatTheSameRanksShare) {
  const ParameterGroup group{make_parameter("a", 100), make_parameter("b", 100),
                             make_parameter("e", 100, experts), make_parameter("f", 100, experts),
                             make_parameter("c", 100)};
  const auto buckets = layout_buckets({group}, {.axes = axes()});
  ASSERT_EQ(buckets.size(), 3u);
  const std::vector<std::size_t> entries{2, 2, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buckets[i].entries.size(), entries[i]);
    EXPECT_EQ(buckets[i].data, i == 1 ? experts : DataGroups{});
    EXPECT_EQ(buckets[i].parts, i == 1 ? 2 : 3);
    EXPECT_EQ(buckets[i].elements % (buckets[i].parts * bucket_block), 0);
  }
}

class SharedOtherwise : public ::testing::TestWithParam<int> {};

TEST_P(SharedOtherwise, AreReducedAndGatheredAmongThose) {
  const int stage = GetParam();
  run_local(6, {}, [&](Transport& transport) {
    const Topology topology = make_topology(transport.world(), Mesh(axes()), transport.nodes());
    const auto device = make_cpu_device();
    Context context(*device, 1);
    const std::vector<std::shared_ptr<Parameter>> parameters{
        make_parameter("usual", 500), make_parameter("expert", 700, experts)};
    for (const auto& p : parameters) p->add_use();
    ParameterBuckets buckets(context, {parameters},
                             {.zero_stage = stage, .limits = {.axes = axes()}}, topology);
    GradientReduction reduction(context, buckets, topology, {});
    WeightGathering weights(buckets, false, 0);

    // Rank r's gradient of element i is r·i, so the sum over the six is 15·i.
    reduction.begin();
    for (const auto& p : parameters) {
      std::vector<float> values(static_cast<std::size_t>(p->spec().placement.numel()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(transport.world().rank()) * static_cast<float>(i);
      }
      context.copy_from_host(p->open_gradient(context, 0), std::as_bytes(std::span(values)));
      p->take_stale(0);
      reduction.ready(context, *p, 0);
    }
    reduction.finish(context);
    for (Bucket& bucket : buckets.buckets()) {
      const bool expert = bucket.layout.data == experts;
      EXPECT_EQ(bucket.sharing.size(), expert ? 2 : 3);
      EXPECT_EQ(bucket.replicas.size(), expert ? 3 : 2);
      if (stage > 0) {
        EXPECT_EQ(bucket.count, bucket.layout.elements / (expert ? 2 : 3));
        EXPECT_EQ(bucket.begin,
                  topology.place(expert ? Group::replicas : Group::shard) * bucket.count);
      }
      const BucketEntry& entry = bucket.layout.entries.front();
      const std::int64_t end = std::min(bucket.begin + bucket.count, entry.numel);
      const auto sums = context.to_host<float>(bucket.gradient);
      for (std::int64_t i = bucket.begin; i < end; ++i) {
        ASSERT_EQ(sums[static_cast<std::size_t>(i - bucket.begin)], 15 * static_cast<float>(i));
      }
      // The shard receives the sums, as after an update.
      copy(context, bucket.gradient, bucket.shard);
    }
    weights.gather_updated(context);
    for (const auto& p : parameters) {
      const auto held = weights.buckets_of({p});
      EXPECT_EQ(held.size(), stage == 3 ? 1u : 0u);
      weights.hold(context, held);
      const auto values = context.to_host<float>(p->weight());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], 15 * static_cast<float>(i)) << p->name();
      }
      weights.release(held);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Buckets, SharedOtherwise, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace trident
