// Products of some rows with a matrix, for experts. The order of additions of an element never
// depends on the tile, and so on the other rows, in which it is computed.
#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/product.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

constexpr int panel_vectors = W == 16 ? 4 : 2;

template <int N>
struct Size {
  static constexpr int value = N;
};

template <class T>
void pack_panels(const T* x, std::int64_t stride, std::int64_t k, std::int64_t n, float* to) {
  constexpr std::int64_t width = panel_vectors * W;
  for (std::int64_t j = 0; j < n; j += width) {
    const std::int64_t count = n - j < width ? n - j : width;
    for (std::int64_t p = 0; p < k; ++p) {
      const T* const from = x + p * stride + j;
      if (count == width) {
#pragma GCC unroll 4
        for (int v = 0; v < panel_vectors; ++v) store(to + v * W, load(from + v * W));
      } else {
        for (std::int64_t i = 0; i < width; i += W) {
          const std::int64_t left = count - i;
          store(to + i, left >= W ? load(from + i) : left > 0 ? load_n(from + i, left) : F{});
        }
      }
      to += width;
    }
  }
}

void panel_products(const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
                    float* c, std::int64_t c_row, std::int64_t m, std::int64_t n, std::int64_t k,
                    bool add) {
  constexpr std::int64_t width = panel_vectors * W;
  for (std::int64_t j = 0; j < n; j += width) {
    product_columns<panel_vectors>({a, a_row, a_column}, b + j * k, width, c + j, c_row, m, k, add);
  }
}

// The sums of the lanes of four vectors. The lanes of a vector are added as pairs, then pairs of
// pairs, then halves.
TRIDENT_INLINE __m128 sums_of_four(F a, F b, F c, F d) {
#if TRIDENT_ISA_WIDTH == 16
  const auto half = [](F x) {
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  };
  const __m256 pairs =
      _mm256_hadd_ps(_mm256_hadd_ps(half(a), half(b)), _mm256_hadd_ps(half(c), half(d)));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
#elif TRIDENT_ISA_WIDTH == 8
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
#else
  const auto pairs = [](__m128 x, __m128 y) {
    return _mm_add_ps(_mm_shuffle_ps(x, y, 0x88), _mm_shuffle_ps(x, y, 0xdd));
  };
  return pairs(pairs(a, b), pairs(c, d));
#endif
}

// c (M, N) (+)= a bᵀ, N at most 4. Fetches the k elements from `next` on, a line at a time.
template <int M, int N>
TRIDENT_INLINE void dot_tile(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row,
                             float* c, std::int64_t c_row, std::int64_t k, bool add,
                             const float* next) {
  F sums[M][4] = {};
  const auto terms = [&](std::int64_t p, auto lanes) {
    F right[N];
    __builtin_prefetch(next + p, 0, 2);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) right[j] = load(b + j * b_row + p, lanes);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const F left = load(a + i * a_row + p, lanes);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sums[i][j] = fma(left, right[j], sums[i][j]);
    }
  };
  each(k, terms);
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) {
    float results[4];
    _mm_storeu_ps(results, sums_of_four(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      float& to = c[i * c_row + j];
      to = add ? to + results[j] : results[j];
    }
  }
}

// The rows of b that come next: each tile fetches one of them, while they last.
struct Ahead {
  const float* row;
  std::int64_t stride, left;
  const float* take(const float* otherwise) {
    if (left == 0) return otherwise;
    --left;
    const float* const own = row;
    row += stride;
    return own;
  }
};

// M rows of a with n rows of b.
template <int M>
static inline void dots_of_rows(const float* a, std::int64_t a_row, const float* b,
                                std::int64_t b_row, float* c, std::int64_t c_row, std::int64_t n,
                                std::int64_t k, bool add, Ahead& ahead) {
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    dot_tile<M, 4>(a, a_row, b + j * b_row, b_row, c + j, c_row, k, add, ahead.take(a));
  }
  for (; j < n; ++j) {
    dot_tile<M, 1>(a, a_row, b + j * b_row, b_row, c + j, c_row, k, add, ahead.take(a));
  }
}

// A few rows of b stay in the first-level cache while all rows of a pass by.
void row_dots(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, float* c,
              std::int64_t c_row, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  constexpr int M = W == 16 ? 6 : 3;
  constexpr std::int64_t kept = 8;
  for (std::int64_t j = 0; j < n; j += kept) {
    const std::int64_t columns = n - j < kept ? n - j : kept, left = n - j - columns;
    Ahead ahead{b + (j + columns) * b_row, b_row, left < kept ? left : kept};
    std::int64_t i = 0;
    const auto rows = [&](auto size) {
      dots_of_rows<size.value>(a + i * a_row, a_row, b + j * b_row, b_row, c + i * c_row + j, c_row,
                               columns, k, add, ahead);
      i += size.value;
    };
    while (i + M <= m) rows(Size<M>{});
    if (M > 4 && i + 3 <= m) rows(Size<3>{});
    if (i + 2 <= m) rows(Size<2>{});
    if (i < m) rows(Size<1>{});
  }
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.pack_panels = pack_panels<T>;
}

}  // namespace

void set_grouped_products(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
  table.panel_width = panel_vectors * W;
  table.panel_products = panel_products;
  table.row_dots = row_dots;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
