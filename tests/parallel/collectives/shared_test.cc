// Tests collectives of in-process ranks whose messages exceed the caches and are written past them.
// The conformance suite has the small sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context.h"
#include "kernels/elementwise.h"
#include "parallel/transport/transport.h"
#include "support/abort_on_unwind.h"

namespace trident {
namespace {

// The values are small whole numbers, so that every sum is exact in every type and order.
template <class T>
std::vector<T> values(int rank, std::int64_t n) {
  std::vector<T> list;
  list.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    list.push_back(T(static_cast<float>((rank + 1) * (i % 7) + i % 3)));
  }
  return list;
}

template <class T>
void expect_values(Context& context, const Tensor& got, std::span<const int> ranks,
                   std::int64_t n) {
  const std::vector<T> list = context.to_host<T>(got);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    float want = 0;
    for (const int rank : ranks) want += static_cast<float>((rank + 1) * (i % 7) + i % 3);
    if (static_cast<float>(list[static_cast<std::size_t>(i)]) != want) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << "of " << n;
}

// The number of elements is odd, so only the first segment begins at a multiple of 16 bytes.
template <class T>
void check(std::int64_t n) {
  run_local(3, {}, [&](Transport& transport) {
    const auto device = make_cpu_device();
    Context context(*device, 1);
    const AbortOnUnwind abort(transport);
    const ProcessGroup world = transport.world();
    const std::vector<T> own = values<T>(world.rank(), n);
    const auto tensor = [&] {
      return context.from_host<T>({n}, std::span<const T>(own), Category::workspace);
    };
    const std::vector<int> all = {0, 1, 2};

    const Tensor sum = tensor();
    world.all_reduce(context, sum);
    expect_values<T>(context, sum, all, n);

    const Tensor parts = context.empty({3 * n}, DTypeOf<T>::value, Category::workspace);
    world.all_gather(context, tensor(), parts);
    for (const int r : all) {
      expect_values<T>(context, parts.flat(r * n, n), std::vector<int>{r}, n);
    }
    const Tensor scattered = tensor();
    world.reduce_scatter(context, parts, scattered);  // every rank holds the same parts
    const std::vector<int> same(3, world.rank());
    expect_values<T>(context, scattered, same, n);

    const Tensor copied = tensor();
    world.broadcast(context, copied, 1);
    expect_values<T>(context, copied, std::vector<int>{1}, n);
  });
}

TEST(SharedMemoryCollectives, ReduceWordsBeyondTheCaches) {
  check<float>((9 << 20) / 4 + 1);
}
TEST(SharedMemoryCollectives, ReduceHalfWordsBeyondTheCaches) {
  check<BFloat16>((9 << 20) / 2 + 1);
}

// The members write each other's buffers. No member may still do so when an operation has returned.
TEST(SharedMemoryCollectives, NoMemberTouchesABufferAfterTheOperation) {
  run_local(4, {}, [](Transport& transport) {
    const auto device = make_cpu_device();
    Context context(*device, 1);
    const AbortOnUnwind abort(transport);
    const ProcessGroup world = transport.world();
    const std::int64_t n = 1 << 20;
    const Tensor x = context.empty({n}, DType::f32, Category::workspace);
    for (int round = 0; round < 20; ++round) {
      fill(context, x, 1);
      world.all_reduce(context, x);
      fill(context, x, -1);
      world.barrier(context);
      const std::vector<float> got = context.to_host<float>(x);
      EXPECT_EQ(std::count(got.begin(), got.end(), -1.0f), n) << "round " << round;
      world.barrier(context);
    }
  });
}

}  // namespace
}  // namespace trident
