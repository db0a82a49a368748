// The helpers of the suite's tests (collectives_conformance.h).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/collectives_conformance.h"
#include "parallel/rank_values.h"
#include "support/abort_on_unwind.h"

namespace trident::test {

// A rank of the world under test.
struct Seat {
  Transport& transport;
  Context& context;
  ProcessGroup world;

  template <class T>
  Tensor tensor(const std::vector<T>& values) const {
    return context.from_host<T>({static_cast<std::int64_t>(values.size())}, values,
                                Category::workspace);
  }
  template <class T>
  Tensor own(std::int64_t n, std::int64_t first = 0) const {
    return tensor(values_of<T>(world.rank(), n, first));
  }
  Tensor empty(std::int64_t n, DType dtype = DType::f32) const {
    return context.empty({n}, dtype, Category::workspace);
  }
  // Ranks on a GPU have only the direct algorithm.
  bool on_host() const { return context.device().kind() == DeviceKind::cpu; }
  template <class T>
  void expect(const Tensor& got, const std::vector<T>& wanted, const std::string& what) const {
    EXPECT_TRUE(same_bytes(context.to_host<T>(got), wanted))
        << what << " on rank " << world.rank() << " of " << world.size();
  }
};

class Collectives : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(const Seat&)>& body, TransportOptions options = {}) const {
    options.timeout = std::chrono::seconds(60);
    GetParam().run(options, [&](Transport& transport, Device& device) {
      Context context(device, 1);
      const AbortOnUnwind guard(transport);
      body({transport, context, transport.world()});
      context.synchronize();
    });
  }
};

inline std::vector<int> iota(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace trident::test
