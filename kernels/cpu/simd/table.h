// The inner loops of the CPU kernels over raw pointers. One source is built three times (SSE2,
// AVX2, AVX-512); a Table holds the functions of one build (kernels/cpu/state.cc chooses it). A
// fourth and a fifth build have the loops of native bf16 products (bf16_loops.h). The functions run
// in the calling thread. Letters: T rows, H columns, n elements.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/optimizer_steps.h"

namespace trident::cpu::simd {

enum class Isa { sse2, avx2, avx512 };
const char* name_of(Isa isa);

// Determines which elements of a dropout site are kept; see kernels/dropout.h.
struct Dropout {
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;  // words below it drop the element; 0: no dropout
  float keep_scale = 1;
};

// Rows of elements that lie `stride` elements apart.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
  T* at(std::int64_t row) const { return data + row * stride; }
  // The rows from `row` on, each from its element `column` on.
  Rows from(std::int64_t row, std::int64_t column = 0) const { return {at(row) + column, stride}; }
};

// The queries or keys of an attention unit: forward's units are blocks of queries, backward's are
// blocks of keys, those of one head after those of another.
inline constexpr std::int64_t attention_block = 64;

// The gradients that backward accumulates over a part of a task: fp32 rows of D' or E' elements (D
// and E rounded up to full vectors). With one head, only this part's key and value rows are
// written.
struct AttentionSums {
  float *keys = nullptr, *values = nullptr;  // the gradients of all keys and values
  // Gradients of the queries of the first and the last head of the part, which other parts may
  // share. If both are the same head, first_queries is used.
  float *first_queries = nullptr, *last_queries = nullptr;
};

struct AttentionSizes {
  std::int64_t queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  float scale = 1;  // of the scores
};

// One sample and one key/value head with its `heads` query heads, whose elements follow each other
// in a row. The mask and the numbers of dropout are those of kernels/attention.h.
template <class T>
struct AttentionTask : AttentionSizes {
  std::int64_t heads = 0;
  Rows<const T> q, k, v;
  Rows<T> out;                   // written by forward, read by backward
  float* log_sum_exp = nullptr;  // (heads, S)
  Rows<const T> grad_out;
  Rows<T> grad_q, grad_k, grad_v;

  std::int64_t query_begin = 0, key_begin = 0, window = 0;
  const std::int64_t* document_begins = nullptr;  // (S), or null
  std::int64_t offset() const { return query_begin - key_begin; }
  // Whether query i sees keys 0 … i, if there are as many, and no key comes after the last query.
  bool plain() const {
    return offset() == 0 && window == 0 && document_begins == nullptr && keys <= queries;
  }

  const T* sinks = nullptr;     // (heads), or null
  float* grad_sinks = nullptr;  // (heads), overwritten

  Dropout dropout;
  std::uint64_t sample = 0;
  std::int64_t first_head = 0;  // global index of the first query head
  std::int64_t dropout_positions = 0;
};

// One query and `count` keys and values, which lie `row` elements apart.
template <class T>
struct AttendTask {
  const T *q = nullptr, *keys = nullptr, *values = nullptr;
  std::int64_t row = 0, count = 0, head_dim = 0, value_dim = 0;
  float scale = 1;          // of the scores
  const T* sink = nullptr;  // or null
};

// The rounded copy of the weights that an update rewrites; at most one of the two pointers is set.
struct ModelWeight {
  BFloat16* bf16 = nullptr;
  Float16* f16 = nullptr;
  ModelWeight from(std::int64_t i) const {
    return {bf16 ? bf16 + i : nullptr, f16 ? f16 + i : nullptr};
  }
};
struct AdafactorStep {
  float gradient_scale, decay, step_size, smallest;  // smallest: floor of the variance
};

// The inner loops for the element type T.
template <class T>
struct Leaves {
  // Element-wise over n; an output may share the memory of an input.
  void (*accumulate)(const T* x, float* y, std::int64_t n);          // y += x
  void (*accumulate_bf16)(const T* x, BFloat16* y, std::int64_t n);  // y += x
  void (*accumulate_f16)(const T* x, Float16* y, std::int64_t n);    // y += x
  template <class U>
  void add_to(const T* x, U* y, std::int64_t n) const {
    if constexpr (__is_same(U, float)) {
      accumulate(x, y, n);
    } else if constexpr (__is_same(U, BFloat16)) {
      accumulate_bf16(x, y, n);
    } else {
      accumulate_f16(x, y, n);
    }
  }
  void (*add_bias)(const T* x, const T* bias, T* y, std::int64_t n);
  void (*to_f32)(const T* x, float* y, std::int64_t n);
  void (*from_f32)(const float* x, T* y, std::int64_t n);
  void (*gelu_forward)(const T* x, T* y, std::int64_t n);
  void (*gelu_backward)(const T* x, const T* grad_y, T* grad_x, std::int64_t n);
  // gate, up, their gradients and y hold n elements each.
  void (*swiglu_forward)(const T* gate, const T* up, T* y, std::int64_t n);
  void (*swiglu_backward)(const T* gate, const T* up, const T* grad_y, T* grad_gate, T* grad_up,
                          std::int64_t n);
  // y = weight · silu(gate) · up. Backward writes it again, and returns the weight's gradient. Each
  // output may share the memory of the input of its name or of grad_y.
  void (*weighted_swiglu)(const T* gate, const T* up, float weight, T* y, std::int64_t n);
  float (*weighted_swiglu_backward)(const T* gate, const T* up, float weight, const T* grad_y,
                                    T* grad_gate, T* grad_up, T* y, std::int64_t n);
  // y = dropout(x) (+ residual), for elements first … first + n of the sample.
  void (*dropout_add)(const Dropout&, std::uint64_t sample, std::uint64_t first, const T* x,
                      const T* residual, T* y, std::int64_t n);
  // Rotates the n pairs (first, second) by the angles whose cosines and sines are given.
  void (*rotate)(T* first, T* second, const float* cosine, const float* sine, std::int64_t n);

  // Over the columns of (T, H), with rows `stride` apart. T alone determines the order of
  // additions.
  void (*column_sums)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      float* total);                 // total += sum over rows
  double (*square_sum)(const T* x, std::int64_t n);  // 16 lanes on every instruction set
  // grad_weight += the sum of grad_y · (x - mean)·rstd, grad_bias += the sum of grad_y. mean and
  // grad_bias are null for RMSNorm.
  void (*norm_weight)(Rows<const T> grad_y, Rows<const T> x, const float* mean, const float* rstd,
                      std::int64_t rows, std::int64_t columns, float* grad_weight,
                      float* grad_bias);

  // y[i] = the sum over k of x · row i of w; rows of w are w_row apart.
  void (*row_products)(const float* x, const T* w, std::int64_t w_row, std::int64_t rows,
                       std::int64_t k, float* y);

  // Packs k rows of n columns, `stride` apart, into panels of Table::panel_width columns, each (k,
  // panel_width) fp32. Columns behind the last are 0.
  void (*pack_panels)(const T* x, std::int64_t stride, std::int64_t k, std::int64_t n, float* to);

  // One row of n columns.
  void (*norm_forward)(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                       std::int64_t n, float epsilon);  // bias and mean null: RMSNorm
  void (*norm_backward)(const T* grad_y, const T* x, const T* weight, const float* mean, float rstd,
                        const T* residual, T* grad_x, std::int64_t n);
  float (*maximum)(const T* x, std::int64_t n);  // -infinity for n = 0
  // totals: the sum of exp(x - maximum), and the sum of x - maximum.
  void (*shifted_sums)(const T* x, std::int64_t n, float maximum, float totals[2]);
  // x := scale · (exp(x - maximum) / total - uniform)
  void (*softmax_gradient)(T* x, std::int64_t n, float maximum, float total, float uniform,
                           float scale);

  // Updates of n weights by gradients of type T; buffer may be null.
  void (*adam)(const AdamStep&, float* weight, const T* gradient, float* moment1, float* moment2,
               ModelWeight, std::int64_t n);
  void (*sgd)(const SgdStep&, float* weight, const T* gradient, float* buffer, ModelWeight,
              std::int64_t n);
  // Adafactor on a part of a row of a matrix, or on a vector; the variance is row · column[i].
  // columns[i] += (scale · gradient[i])²; columns may be null. Returns the sum of these squares.
  double (*adafactor_squares)(const T* gradient, float scale, double* columns, std::int64_t n);
  // Returns the sum of the squares of gradient / sqrt(variance).
  double (*adafactor_size)(const AdafactorStep&, const T* gradient, float row, const float* column,
                           std::int64_t n);
  void (*adafactor_update)(const AdafactorStep&, float* weight, const T* gradient, float row,
                           const float* column, ModelWeight, std::int64_t n);

  // Units [begin, end) of a task. scratch: attention_…_scratch() floats, 64-byte aligned. Backward
  // writes the gradients if these are all units; otherwise it writes those of the queries of its
  // complete heads and of sinks, and `sums`.
  void (*attention_forward)(const AttentionTask<T>&, std::int64_t begin, std::int64_t end,
                            float* scratch);
  void (*attention_backward)(const AttentionTask<T>&, std::int64_t begin, std::int64_t end,
                             const AttentionSums& sums, float* scratch);
  // Rows [begin, end) of `to`, of d elements, become factor · the sum of `count` arrays of rows of
  // d' elements, added in the arrays' order.
  void (*attention_sum)(const float* const* parts, std::int64_t count, std::int64_t begin,
                        std::int64_t end, std::int64_t d, float factor, Rows<T> to);
  // out = softmax(q · keys / sqrt(D)) values. scores: scratch of `count` floats.
  void (*attend)(const AttendTask<T>&, float* scores, T* out);
};

struct Table {
  Isa isa;
  Leaves<float> f32;
  Leaves<BFloat16> bf16;
  Leaves<Float16> f16;
  void (*scale)(float* x, float factor, std::int64_t n);
  void (*lerp)(float* x, const float* target, float part, std::int64_t n);
  // c (m, n) (+)= a (m, k) b (k, n), b in panels (pack_panels). Element (i, p) of a is a[i·a_row +
  // p·a_column]. The rows of c have n rounded up to full panels. The terms of an element are added
  // one by one, in ascending order, whatever m and n are.
  std::int64_t panel_width;
  void (*panel_products)(const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
                         float* c, std::int64_t c_row, std::int64_t m, std::int64_t n,
                         std::int64_t k, bool add);
  // c (m, n) (+)= a (m, k) bᵀ, b (n, k), rows a_row, b_row and c_row apart. The order of additions
  // of an element depends on k alone.
  void (*row_dots)(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, float* c,
                   std::int64_t c_row, std::int64_t m, std::int64_t n, std::int64_t k, bool add);
  // The number of scratch floats for an attention task of this size.
  std::int64_t (*attention_forward_scratch)(const AttentionSizes&);
  // `sums`: tasks are run whole.
  std::int64_t (*attention_backward_scratch)(const AttentionSizes&, bool sums);

  template <class T>
  const Leaves<T>& get() const {
    if constexpr (__is_same(T, float)) {
      return f32;
    } else if constexpr (__is_same(T, BFloat16)) {
      return bf16;
    } else {
      return f16;
    }
  }
};

// Returns the table of an instruction set. Throws Error if the processor lacks it.
const Table& table(Isa isa);
bool supported(Isa isa);  // whether this processor has it
// The widest instruction set of this processor.
Isa best_isa();
// Whether this processor has AMX's products of bf16, and the system lets this process use them.
bool allows_amx();
// Whether this processor has AVX-512 BF16, the products of bf16 of vectors.
bool has_avx512_bf16();

}  // namespace trident::cpu::simd
