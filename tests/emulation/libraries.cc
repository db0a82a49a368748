// Operations that use libraries on a real GPU, done by plain loops on the host in the stream's
// order.
#include <algorithm>

#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/sort.h"

namespace trident::cuda {
namespace {

// Our own kernels do all of attention here.
class NoFusedAttention final : public FusedAttention {
 public:
  bool forward(const Queue&, const Access&, Context&, const AttentionArgs&) override {
    return false;
  }
  bool backward(const Queue&, const Access&, Context&, const AttentionBackwardArgs&) override {
    return false;
  }
};

}  // namespace

std::size_t sort_workspace(const SortRows& s) {
  return static_cast<std::size_t>(s.n) * 8;  // for two copies of ids and rows
}

void sort_rows(const Queue& queue, const SortRows& s, void*, std::size_t) {
  check(emulation::enqueue(queue.stream,
                           [s] {
                             std::copy_n(s.ascending, s.n, s.rows_out);
                             std::stable_sort(s.rows_out, s.rows_out + s.n,
                                              [&](std::int32_t a, std::int32_t b) {
                                                return s.ids[a] < s.ids[b];
                                              });
                             for (std::int64_t i = 0; i < s.n; ++i) {
                               s.ids_out[i] = s.ids[s.rows_out[i]];
                             }
                           }),
        "a sort");
}

std::unique_ptr<FusedAttention> make_fused_attention() {
  return std::make_unique<NoFusedAttention>();
}
int fused_attention_version() {
  return 0;
}

}  // namespace trident::cuda
