// Rates of the kernels that training time goes to. Threads are the last argument.
#include <benchmark/benchmark.h>

#include "core/context.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace trident {
namespace {

struct Bench {
  explicit Bench(std::int64_t threads) : context(*device, static_cast<int>(threads)) {}
  Tensor normal(Shape shape, DType dtype) {
    const Tensor x = context.empty(shape, dtype, Category::activation);
    fill_normal(
        context,
        {.x = x, .key = 1, .deviation = 1, .global_rows = shape[0], .global_columns = shape[1]});
    return x;
  }
  std::unique_ptr<Device> device = make_cpu_device();
  Context context;
};

DType dtype_of(std::int64_t bf16) {
  return bf16 ? DType::bf16 : DType::f32;
}

void report(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(
      flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

// A linear layer of T rows from K to N columns: 0 its output, 1 its input's gradient, 2 its
// weight's gradient.
void linear(benchmark::State& state) {
  const std::int64_t t = state.range(0), k = state.range(1), n = state.range(2);
  const std::int64_t pass = state.range(3);
  const DType dtype = dtype_of(state.range(4));
  Bench bench(state.range(5));
  const Tensor x = bench.normal({t, k}, dtype), y = bench.normal({t, n}, dtype),
               weight = bench.normal({n, k}, dtype), grad = bench.normal({n, k}, DType::f32);
  for (auto _ : state) {
    if (pass == 0) gemm(bench.context, {.a = x, .b = weight, .c = y, .transpose_b = true});
    if (pass == 1) gemm(bench.context, {.a = y, .b = weight, .c = x});
    if (pass == 2) {
      gemm(bench.context, {.a = y, .b = x, .c = grad, .transpose_a = true, .accumulate = true});
    }
  }
  report(state, 2.0 * static_cast<double>(t * k * n));
}
BENCHMARK(linear)
    ->ArgNames({"T", "K", "N", "pass", "bf16", "threads"})
    ->ArgsProduct({{1024}, {768}, {3072}, {0, 1, 2}, {0, 1}, {1, 2}})
    ->ArgsProduct({{512}, {128}, {256}, {0, 1, 2}, {0}, {1}})
    ->UseRealTime();

// FLOPs of the causal half alone.
void attention(benchmark::State& state) {
  const AttentionShape shape{state.range(0), state.range(1), state.range(2), state.range(2),
                             state.range(3)};
  const bool backward = state.range(4) != 0;
  const DType dtype = dtype_of(state.range(5));
  Bench bench(state.range(6));
  const std::int64_t rows = shape.batch * shape.sequence, width = shape.heads * shape.head_dim;
  const Tensor qkv = bench.normal({rows, shape.row()}, dtype),
               grad = bench.normal({rows, width}, dtype),
               out = bench.context.empty({rows, width}, dtype, Category::activation),
               grad_qkv = bench.context.empty({rows, shape.row()}, dtype, Category::activation),
               log_sum_exp = bench.context.empty({shape.batch, shape.heads, shape.sequence},
                                                 DType::f32, Category::activation);
  attention_forward(bench.context,
                    {.shape = shape, .qkv = qkv, .out = out, .log_sum_exp = log_sum_exp});
  for (auto _ : state) {
    if (backward) {
      attention_backward(bench.context, {.shape = shape,
                                         .qkv = qkv,
                                         .out = out,
                                         .log_sum_exp = log_sum_exp,
                                         .grad_out = grad,
                                         .grad_qkv = grad_qkv});
    } else {
      attention_forward(bench.context,
                        {.shape = shape, .qkv = qkv, .out = out, .log_sum_exp = log_sum_exp});
    }
  }
  report(state,
         (backward ? 5.0 : 2.0) * static_cast<double>(shape.batch * shape.heads * shape.sequence *
                                                      shape.sequence * shape.head_dim));
}
BENCHMARK(attention)
    ->ArgNames({"B", "S", "A", "D", "backward", "bf16", "threads"})
    ->ArgsProduct({{4}, {256}, {12}, {64}, {0, 1}, {0, 1}, {1, 2}})
    ->ArgsProduct({{4}, {128}, {2}, {32}, {0, 1}, {0}, {1}})
    ->ArgsProduct({{1}, {1024}, {12}, {64}, {0, 1}, {0}, {1}})
    ->UseRealTime();

void gelu(benchmark::State& state) {
  Bench bench(1);
  const Tensor x = bench.normal({1024, 3072}, dtype_of(state.range(0)));
  const Tensor y = bench.normal({1024, 3072}, x.dtype());
  const Tensor z = bench.normal({1024, 3072}, x.dtype());
  for (auto _ : state) {
    if (state.range(1)) {
      gelu_backward(bench.context, x, y, z);
    } else {
      gelu_forward(bench.context, x, y);
    }
  }
  state.SetItemsProcessed(state.iterations() * x.numel());
}
BENCHMARK(gelu)->ArgNames({"bf16", "backward"})->ArgsProduct({{0, 1}, {0, 1}});

void layer_norm(benchmark::State& state) {
  Bench bench(1);
  const DType dtype = dtype_of(state.range(0));
  const std::int64_t rows = 1024, columns = 768;
  const Tensor x = bench.normal({rows, columns}, dtype), y = bench.normal({rows, columns}, dtype),
               z = bench.normal({rows, columns}, dtype),
               weight = bench.normal({1, columns}, dtype).view({columns}),
               mean = bench.normal({1, rows}, DType::f32).view({rows}),
               rstd = bench.normal({1, rows}, DType::f32).view({rows}),
               grad = bench.normal({1, columns}, DType::f32).view({columns});
  for (auto _ : state) {
    if (state.range(1) == 0) {
      norm_forward(bench.context,
                   {.x = x, .weight = weight, .bias = weight, .y = y, .mean = mean, .rstd = rstd});
    } else if (state.range(1) == 1) {
      norm_backward_input(
          bench.context,
          {.grad_y = y, .x = x, .weight = weight, .mean = mean, .rstd = rstd, .grad_x = z});
    } else {
      norm_backward_weight(bench.context, {.grad_y = y,
                                           .x = x,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .grad_weight = grad,
                                           .grad_bias = grad});
    }
  }
  state.SetItemsProcessed(state.iterations() * x.numel());
}
BENCHMARK(layer_norm)->ArgNames({"bf16", "pass"})->ArgsProduct({{0, 1}, {0, 1, 2}});

}  // namespace
}  // namespace trident
