// What libraries do on a real GPU, done plainly on the host in the stream's order.
#include <algorithm>
#include <vector>

#include "kernels/by_dtype.h"
#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sort.h"

namespace trident::cuda {
namespace {

// c := op(a) op(b) (+ bias) (+ c), added up in fp32 in ascending k and rounded once.
template <class T, class U>
void multiply(const T* a, const T* b, const T* bias, U* c, std::int64_t m, std::int64_t n,
              std::int64_t k, const GemmArgs& args) {
  std::vector<float> row(static_cast<std::size_t>(n)), wide(static_cast<std::size_t>(k * n));
  for (std::int64_t p = 0; p < k; ++p) {
    for (std::int64_t j = 0; j < n; ++j) {
      wide[static_cast<std::size_t>(p * n + j)] =
          static_cast<float>(args.transpose_b ? b[j * k + p] : b[p * n + j]);
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (std::int64_t p = 0; p < k; ++p) {
      const auto x = static_cast<float>(args.transpose_a ? a[p * m + i] : a[i * k + p]);
      const float* const y = wide.data() + p * n;
      for (std::int64_t j = 0; j < n; ++j) row[static_cast<std::size_t>(j)] += x * y[j];
    }
    for (std::int64_t j = 0; j < n; ++j) {
      float value = row[static_cast<std::size_t>(j)];
      if (bias) value += static_cast<float>(bias[j]);
      if (args.accumulate) value += static_cast<float>(c[i * n + j]);
      c[i * n + j] = U(value);
    }
  }
}

class PlainProducts final : public Products {
 public:
  void run(const Queue& queue, const Access& access, Context&, const GemmArgs& args) override {
    const std::int64_t m = args.c.dim(0), n = args.c.dim(1),
                       k = args.a.dim(args.transpose_a ? 0 : 1);
    by_dtype(args.a.dtype(), [&]<class T>(T*) {
      const T *const a = data<T>(access, args.a), *const b = data<T>(access, args.b),
                     *const bias = data<T>(access, args.bias);
      const auto into = [&]<class U>(U* c) {
        // Only the flags of args may be used there: a real GPU keeps no tensor alive either.
        GemmArgs flags;
        flags.transpose_a = args.transpose_a;
        flags.transpose_b = args.transpose_b;
        flags.accumulate = args.accumulate;
        check(emulation::enqueue(queue.stream, [=] { multiply(a, b, bias, c, m, n, k, flags); }),
              "a product");
      };
      if (args.c.dtype() == DType::f32) {
        into(data<float>(access, args.c));
      } else {
        into(data<T>(access, args.c));
      }
    });
  }
};

// Ours does everything here.
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

std::unique_ptr<Products> make_products() {
  return std::make_unique<PlainProducts>();
}

std::size_t sort_workspace(const SortRows& s) {
  return static_cast<std::size_t>(s.n) * 8;  // as if between two copies of ids and rows
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

}  // namespace trident::cuda
