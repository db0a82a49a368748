// Every kernel of the contract at the sizes of GPT-2 124M, beside what this machine can do.
//
//   kernels_bench [--device=cuda] [--benchmark_filter=REGEX] [Google Benchmark's other options]
//
// On a GPU with 32 times the tokens, ten runs after each other by the device's own clock.
// FLOP/s and B/s count what the operation needs: each operand read or written once, attention's
// causal half alone. of_limit is the time that the measured limits leave no way around (its FLOPs
// at the rate of a matrix product of its dtype, or its bytes at the rate at which 256 MiB, on a GPU
// 1 GiB, are copied or changed in place, whichever is longer) over the time it took; above 1 where
// operands stay in the caches.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/context.h"
#include "kernels/backend.h"
#include "kernels/cuda_device.h"
#include "training/report/product_rate.h"

namespace trident {
namespace {

std::unique_ptr<Device> device;
std::int64_t tokens = 1024;
constexpr std::int64_t hidden = 768, mlp = 3072, vocabulary = 50304, heads = 12, sequence = 256,
                       head_dim = 64;

struct Bench {
  // On a GPU as it trains where nothing else is asked for.
  explicit Bench(int threads)
      : context(*device, threads, {.deterministic = device->kind() != DeviceKind::cuda}) {}

  Tensor empty(Shape shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  }
  Tensor normal(Shape shape, DType dtype) {
    const Tensor x = empty(shape, dtype);
    fill_normal(context, {.x = x,
                          .key = 1,
                          .deviation = 1,
                          .global_rows = shape.rank() == 1 ? 1 : shape[0],
                          .global_columns = shape[shape.rank() - 1]});
    return x;
  }
  Tensor normal_f32(Shape shape) { return normal(shape, DType::f32); }
  Tensor ids() {
    std::vector<std::int32_t> values(tokens);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
    }
    return context.from_host<std::int32_t>({tokens}, values, Category::activation);
  }
  DropoutArgs dropout(float probability) {
    const std::vector<std::int64_t> samples(tokens / sequence, 1);
    return {.probability = probability,
            .key = 1,
            .samples = context.from_host<std::int64_t>({tokens / sequence}, samples,
                                                       Category::activation)};
  }

  Context context;
};

// One kernel, ready to run, with the FLOPs of its products and the bytes of its operands.
struct Work {
  double flops = 0, bytes = 0;
  std::function<void()> run;
};

double bytes_of(std::initializer_list<Tensor> operands) {
  double bytes = 0;
  for (const Tensor& x : operands) bytes += static_cast<double>(x.bytes());
  return bytes;
}

struct Limits {
  double flops, bytes;  // a second
};

bool on_gpu() {
  return device->kind() == DeviceKind::cuda;
}

// Measured once a process.
const Limits& limits_of(DType dtype, int threads) {
  static std::map<std::pair<DType, int>, Limits> known;
  const auto [found, missing] = known.try_emplace({dtype, threads});
  if (missing) {
    Bench bench(threads);
    const std::int64_t n = (on_gpu() ? 256 : 64) << 20;
    const Tensor from = bench.normal_f32({n}), to = bench.normal_f32({n});
    double best = 0;
    const auto run = [&](double bytes, auto work) {
      ClockReading begin, end;
      bench.context.mark(begin);
      work();
      bench.context.mark(end);
      bench.context.synchronize();
      best = std::max(best, 1e9 * bytes / static_cast<double>(end.wall_ns - begin.wall_ns));
    };
    for (int i = 0; i < 5; ++i) {
      run(bytes_of({from, to}), [&] { copy(bench.context, from, to); });
      run(bytes_of({to, to}), [&] { scale(bench.context, to, 1.0f); });
    }
    found->second = {product_rate(bench.context, dtype, usual_product(bench.context, dtype)), best};
  }
  return found->second;
}

using Make = std::function<Work(Bench&, DType)>;

void run_case(benchmark::State& state, const Make& make, DType dtype, int threads) {
  const Limits& limits = limits_of(dtype, threads);
  // On a GPU one for all cases: it keeps libraries' handles and plans.
  static std::unique_ptr<Bench> kept;
  if (!on_gpu() || kept == nullptr) kept = std::make_unique<Bench>(threads);
  Bench& bench = *kept;
  const Work work = make(bench, dtype);
  work.run();
  bench.context.synchronize();
  const int repeats = on_gpu() ? 10 : 1;
  for (auto _ : state) {
    ClockReading begin, end;
    // Ahead of the clock, so that the queue is never empty behind it.
    for (int i = 0; on_gpu() && i < 2; ++i) work.run();
    bench.context.mark(begin);
    for (int i = 0; i < repeats; ++i) work.run();
    bench.context.mark(end);
    bench.context.synchronize();
    state.SetIterationTime(1e-9 * static_cast<double>(end.wall_ns - begin.wall_ns) / repeats);
  }
  const auto rate = [&](const char* name, double amount) {
    if (amount > 0) {
      state.counters[name] = benchmark::Counter(
          amount, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
    }
  };
  rate("FLOP/s", work.flops);
  rate("B/s", work.bytes);
  rate("of_limit", std::max(work.flops / limits.flops, work.bytes / limits.bytes));
}

// A case that fails is named, and the others go on.
void measure(benchmark::State& state, const Make& make, DType dtype, int threads) {
  try {
    run_case(state, make, dtype, threads);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

enum class Types { both, f32 };

void add_case(const std::string& name, Types types, const Make& make) {
  const int all =
      on_gpu() ? 1 : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && types == Types::f32) continue;
    for (int threads = 1; threads <= all; threads = threads == all ? all + 1 : all) {
      benchmark::RegisterBenchmark(
          (name + "/" + std::string(name_of(dtype)) + "/threads:" + std::to_string(threads))
              .c_str(),
          measure, make, dtype, threads)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

// A linear layer from k to n columns: its output, its input's gradient, its weight's gradient.
void add_linear(std::int64_t rows, std::int64_t k, std::int64_t n) {
  const std::string size = std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k * n);
  const auto add = [&](const char* pass, bool weight_gradient, auto arguments) {
    add_case("gemm/" + std::string(pass) + "/" + size, Types::both,
             [=](Bench& bench, DType dtype) -> Work {
               const Tensor x = bench.normal({rows, k}, dtype), y = bench.normal({rows, n}, dtype),
                            w = bench.normal({n, k}, weight_gradient ? DType::f32 : dtype);
               const GemmArgs args = arguments(x, y, w);
               return {flops, bytes_of({x, y, w}) + (args.accumulate ? bytes_of({w}) : 0),
                       [&bench, args] { gemm(bench.context, args); }};
             });
  };
  add("forward", false, [](auto& x, auto& y, auto& w) {
    return GemmArgs{.a = x, .b = w, .c = y, .transpose_b = true};
  });
  add("input_gradient", false,
      [](auto& x, auto& y, auto& w) { return GemmArgs{.a = y, .b = w, .c = x}; });
  add("weight_gradient", true, [](auto& x, auto& y, auto& w) {
    return GemmArgs{.a = y, .b = x, .c = w, .transpose_a = true, .accumulate = true};
  });
}

// What goes along with a product, in one pass where the backend can.
void add_fused_linear(std::int64_t rows, std::int64_t k, std::int64_t n) {
  const std::string size = std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k * n);
  const auto add = [&](const char* pass, auto make) {
    add_case("gemm/" + std::string(pass) + "/" + size, Types::both,
             [=](Bench& bench, DType dtype) -> Work {
               const Tensor x = bench.normal({rows, k}, dtype), y = bench.normal({rows, n}, dtype);
               const GemmArgs args = make(bench, x, y, dtype);
               return {flops, bytes_of({args.a, args.b, args.c}),
                       [&bench, args] { gemm(bench.context, args); }};
             });
  };
  using T = const Tensor&;
  add("forward_bias", [=](Bench& bench, T x, T y, DType dtype) {
    return GemmArgs{.a = x,
                    .b = bench.normal({n, k}, dtype),
                    .c = y,
                    .transpose_b = true,
                    .bias = bench.normal({n}, dtype)};
  });
  add("forward_bias_gelu", [=](Bench& bench, T x, T y, DType dtype) {
    return GemmArgs{.a = x,
                    .b = bench.normal({n, k}, dtype),
                    .c = y,
                    .transpose_b = true,
                    .bias = bench.normal({n}, dtype),
                    .pre_activation = bench.empty({rows, n}, dtype)};
  });
  add("input_gradient_gelu", [=](Bench& bench, T x, T y, DType dtype) {
    return GemmArgs{.a = x,
                    .b = bench.normal({k, n}, dtype),
                    .c = y,
                    .gelu_input = bench.normal({rows, n}, dtype)};
  });
  add("weight_gradient_bias", [=](Bench& bench, T x, T y, DType) {
    return GemmArgs{.a = y,
                    .b = x,
                    .c = bench.normal_f32({n, k}),
                    .transpose_a = true,
                    .accumulate = true,
                    .bias_gradient = bench.normal_f32({n})};
  });
}

void add_attention(const AttentionShape& shape, float probability) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const std::string size = std::to_string(shape.batch) + "x" + std::to_string(shape.sequence) +
                           "x" + std::to_string(shape.heads) + "x" +
                           std::to_string(shape.head_dim) + (probability > 0 ? "/dropout" : "");
  // One product of queries and keys, over the pairs that see each other.
  const double product = 2 * d(shape.batch * shape.heads * shape.head_dim) * d(shape.sequence) *
                         d(shape.sequence + 1) / 2;
  for (const bool backward : {false, true}) {
    add_case(
        std::string("attention/") + (backward ? "backward/" : "forward/") + size, Types::both,
        [=](Bench& bench, DType dtype) -> Work {
          const std::int64_t rows = shape.batch * shape.sequence,
                             width = shape.heads * shape.head_dim;
          AttentionBackwardArgs args{
              .shape = shape,
              .qkv = bench.normal({rows, shape.row()}, dtype),
              .out = bench.empty({rows, width}, dtype),
              .log_sum_exp = bench.empty({shape.batch, shape.heads, shape.sequence}, DType::f32),
              .grad_out = bench.normal({rows, width}, dtype),
              .grad_qkv = bench.empty({rows, shape.row()}, dtype)};
          if (probability > 0) {
            const std::vector<std::int64_t> samples(static_cast<std::size_t>(shape.batch), 1);
            args.dropout = {.probability = probability,
                            .key = 1,
                            .samples = bench.context.from_host<std::int64_t>({shape.batch}, samples,
                                                                             Category::activation)};
          }
          const auto forward = [&bench, args] {
            attention_forward(bench.context, {.shape = args.shape,
                                              .qkv = args.qkv,
                                              .out = args.out,
                                              .log_sum_exp = args.log_sum_exp,
                                              .dropout = args.dropout});
          };
          forward();
          if (!backward) {
            return {2 * product, bytes_of({args.qkv, args.out, args.log_sum_exp}), forward};
          }
          return {5 * product,
                  bytes_of({args.qkv, args.out, args.log_sum_exp, args.grad_out, args.grad_qkv}),
                  [&bench, args] { attention_backward(bench.context, args); }};
        });
  }
}

void add_norms() {
  for (const bool layer : {true, false}) {
    const auto add = [&](const char* pass, auto work) {
      add_case(std::string(layer ? "layer_norm/" : "rms_norm/") + pass, Types::both,
               [=](Bench& bench, DType dtype) -> Work {
                 const Tensor x = bench.normal({tokens, hidden}, dtype),
                              y = bench.normal({tokens, hidden}, dtype),
                              weight = bench.normal({hidden}, dtype),
                              rstd = bench.normal_f32({tokens}),
                              mean = layer ? bench.normal_f32({tokens}) : Tensor();
                 return work(bench, x, y, weight, mean, rstd);
               });
    };
    using T = const Tensor&;
    add("forward", [=](Bench& bench, T x, T y, T weight, T mean, T rstd) -> Work {
      const Tensor bias = layer ? weight : Tensor();
      return {0, bytes_of({x, y}), [=, &bench] {
                norm_forward(
                    bench.context,
                    {.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd});
              }};
    });
    add("input_gradient", [](Bench& bench, T x, T y, T weight, T mean, T rstd) -> Work {
      const Tensor residual = bench.normal({tokens, hidden}, x.dtype());
      return {0, bytes_of({x, y, residual, residual}), [=, &bench] {
                norm_backward_input(bench.context, {.grad_y = y,
                                                    .x = x,
                                                    .weight = weight,
                                                    .mean = mean,
                                                    .rstd = rstd,
                                                    .grad_x = residual,
                                                    .residual_grad = residual});
              }};
    });
    add("weight_gradient", [=](Bench& bench, T x, T y, T, T mean, T rstd) -> Work {
      const Tensor grad = bench.normal_f32({hidden}),
                   grad_bias = layer ? bench.normal_f32({hidden}) : Tensor();
      return {0, bytes_of({x, y}), [=, &bench] {
                norm_backward_weight(bench.context, {.grad_y = y,
                                                     .x = x,
                                                     .mean = mean,
                                                     .rstd = rstd,
                                                     .grad_weight = grad,
                                                     .grad_bias = grad_bias});
              }};
    });
  }
}

void add_activations() {
  const auto add = [](const char* name, std::int64_t width, auto forward, auto backward) {
    add_case(std::string(name) + "/forward", Types::both, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, width}, dtype), y = bench.normal({tokens, mlp}, dtype);
      return {0, bytes_of({x, y}), [=, &bench] { forward(bench.context, x, y); }};
    });
    add_case(std::string(name) + "/backward", Types::both, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, width}, dtype), y = bench.normal({tokens, mlp}, dtype),
                   grad = bench.normal({tokens, width}, dtype);
      return {0, bytes_of({x, y, grad}), [=, &bench] { backward(bench.context, x, y, grad); }};
    });
  };
  add("gelu", mlp, gelu_forward, gelu_backward);
  add("swiglu", 2 * mlp, swiglu_forward, swiglu_backward);
}

void add_embeddings() {
  add_case("embedding/forward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const EmbeddingArgs args{.ids = bench.ids(),
                             .table = bench.normal({vocabulary, hidden}, dtype),
                             .out = bench.normal({tokens, hidden}, dtype)};
    return {0, bytes_of({args.out, args.out}),
            [=, &bench] { embedding_forward(bench.context, args); }};
  });
  add_case("embedding/backward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const EmbeddingBackwardArgs args{.ids = bench.ids(),
                                     .grad_out = bench.normal({tokens, hidden}, dtype),
                                     .grad_table = bench.normal_f32({vocabulary, hidden})};
    const double rows = 2.0 * static_cast<double>(tokens * hidden) * sizeof(float);
    return {0, bytes_of({args.grad_out}) + rows,
            [=, &bench] { embedding_backward(bench.context, args); }};
  });
  add_case("position/forward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const PositionArgs args{.x = bench.normal({tokens, hidden}, dtype),
                            .table = bench.normal({sequence, hidden}, dtype),
                            .sequence = sequence};
    return {0, bytes_of({args.x, args.x, args.table}),
            [=, &bench] { position_forward(bench.context, args); }};
  });
  add_case("position/backward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const PositionBackwardArgs args{.grad_x = bench.normal({tokens, hidden}, dtype),
                                    .grad_table = bench.normal_f32({sequence, hidden}),
                                    .sequence = sequence};
    return {0, bytes_of({args.grad_x, args.grad_table, args.grad_table}),
            [=, &bench] { position_backward(bench.context, args); }};
  });
  add_case("rotary", Types::both, [](Bench& bench, DType dtype) -> Work {
    const AttentionShape shape{tokens / sequence, sequence, heads, heads, head_dim};
    const Tensor qkv = bench.normal({tokens, shape.row()}, dtype);
    return {0, bytes_of({qkv, qkv}) * 2 / 3,
            [=, &bench] { rotary(bench.context, {.shape = shape, .qkv = qkv}); }};
  });
}

void add_cross_entropy() {
  const std::int64_t rows = tokens / 4;
  const CrossEntropyShape shape{.valid = 50257, .vocabulary = 50257};
  const auto add = [&](const char* step, double passes, auto run) {
    add_case(
        std::string("cross_entropy/") + step, Types::both, [=](Bench& bench, DType dtype) -> Work {
          const Tensor logits = bench.normal({rows, vocabulary}, dtype),
                       labels = bench.ids().rows(0, rows), maximum = bench.normal_f32({rows}),
                       statistics = bench.normal_f32({3, rows});
          cross_entropy_maximum(bench.context, shape, logits, maximum);
          cross_entropy_statistics(bench.context, shape, logits, labels, maximum, statistics);
          return {0, passes * bytes_of({logits}),
                  [=, &bench] { run(bench.context, shape, logits, labels, maximum, statistics); }};
        });
  };
  using T = const Tensor&;
  using S = const CrossEntropyShape&;
  add("maximum", 1, [](Context& context, S s, T logits, T, T maximum, T) {
    cross_entropy_maximum(context, s, logits, maximum);
  });
  add("statistics", 1, [](Context& context, S s, T logits, T labels, T maximum, T statistics) {
    cross_entropy_statistics(context, s, logits, labels, maximum, statistics);
  });
  // In place: scaled by 1, the logits soon hold probabilities, which cost the same.
  add("gradient", 2, [](Context& context, S s, T logits, T labels, T maximum, T statistics) {
    cross_entropy_gradient(context, s, logits, labels, maximum, statistics, 1.0f);
  });
  add_case("cross_entropy/whole", Types::both, [=](Bench& bench, DType dtype) -> Work {
    const Tensor logits = bench.normal({rows, vocabulary}, dtype),
                 labels = bench.ids().rows(0, rows), losses = bench.normal_f32({rows});
    return {0, 2 * bytes_of({logits}),
            [=, &bench] { cross_entropy(bench.context, shape, logits, labels, losses, 1.0f); }};
  });
  add_case("cross_entropy/losses", Types::f32, [=](Bench& bench, DType) -> Work {
    const Tensor statistics = bench.normal_f32({3, rows}), losses = bench.normal_f32({rows});
    return {0, bytes_of({statistics, losses}),
            [=, &bench] { cross_entropy_losses(bench.context, shape, statistics, losses); }};
  });
}

void add_elementwise() {
  const auto kernel = [](const char* name, Types types, double passes, auto run) {
    add_case(name, types, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, mlp}, dtype), y = bench.normal({tokens, mlp}, dtype);
      return {0, passes * bytes_of({x}), run(bench, x, y)};
    });
  };
  using T = const Tensor&;
  kernel("fill", Types::both, 1,
         [](Bench& bench, T x, T) { return [=, &bench] { fill(bench.context, x, 0); }; });
  kernel("copy", Types::both, 2,
         [](Bench& bench, T x, T y) { return [=, &bench] { copy(bench.context, x, y); }; });
  kernel("add", Types::both, 3,
         [](Bench& bench, T x, T y) { return [=, &bench] { add(bench.context, x, y); }; });
  kernel("scale", Types::f32, 2,
         [](Bench& bench, T x, T) { return [=, &bench] { scale(bench.context, x, 1.0f); }; });
  kernel("add_bias", Types::both, 2, [](Bench& bench, T x, T y) {
    return
        [=, &bench, bias = bench.normal({mlp}, x.dtype())] { add_bias(bench.context, x, bias, y); };
  });
  kernel("bias_backward", Types::both, 1, [](Bench& bench, T x, T) {
    return [=, &bench, grad = bench.normal_f32({mlp})] { bias_backward(bench.context, x, grad); };
  });
  kernel("sum", Types::f32, 1, [](Bench& bench, T x, T) {
    return [=, &bench, total = bench.empty({1}, DType::f64)] { sum(bench.context, x, total); };
  });
  kernel("square_sums", Types::f32, 1, [](Bench& bench, T x, T) {
    constexpr std::int64_t block = 64;  // as of the gradient norm
    return [=, &bench, sums = bench.empty({tokens * mlp / block}, DType::f64)] {
      square_sums(bench.context, x.view({tokens * mlp}), block, sums);
    };
  });
  kernel("fill_normal", Types::both, 1, [](Bench& bench, T x, T) {
    return [=, &bench] {
      fill_normal(bench.context, {.x = x, .key = 1, .global_rows = tokens, .global_columns = mlp});
    };
  });
  for (const float probability : {0.0f, 0.1f}) {
    kernel(probability > 0 ? "dropout_add/0.1" : "dropout_add/0", Types::both, 3,
           [=](Bench& bench, T x, T y) {
             const DropoutArgs dropout = bench.dropout(probability);
             return [=, &bench] {
               dropout_add(
                   bench.context,
                   {.dropout = dropout, .x = x, .residual = y, .y = y, .sequence = sequence});
             };
           });
  }
}

// 16 Mi parameters, on a GPU 64 Mi: far beyond the caches.
void add_optimizers() {
  const std::int64_t n = (on_gpu() ? 64 : 16) << 20;
  for (const bool copies : {false, true}) {
    const std::string suffix = copies ? "/bf16_copy" : "";
    add_case("adamw" + suffix, Types::f32, [=](Bench& bench, DType dtype) -> Work {
      AdamArgs args{.weight = bench.normal({n}, dtype),
                    .gradient = bench.normal({n}, dtype),
                    .moment1 = bench.normal({n}, dtype),
                    .moment2 = bench.empty({n}, dtype),
                    .learning_rate = 1e-4};
      fill(bench.context, args.moment2, 1);
      if (copies) args.model_weight = bench.normal({n}, DType::bf16);
      return {0, static_cast<double>(n) * (7.0 * sizeof(float) + (copies ? 2 : 0)),
              [=, &bench] { adam(bench.context, args); }};
    });
    add_case("sgd" + suffix, Types::f32, [=](Bench& bench, DType dtype) -> Work {
      SgdArgs args{.weight = bench.normal({n}, dtype),
                   .gradient = bench.normal({n}, dtype),
                   .momentum_buffer = bench.normal({n}, dtype),
                   .learning_rate = 1e-4,
                   .momentum = 0.9,
                   .step = 2};
      if (copies) args.model_weight = bench.normal({n}, DType::bf16);
      return {0, static_cast<double>(n) * (5.0 * sizeof(float) + (copies ? 2 : 0)),
              [=, &bench] { sgd(bench.context, args); }};
    });
  }
}

}  // namespace
}  // namespace trident

int main(int count, char** arguments) {
  using namespace trident;
  const auto chosen = std::find(arguments + 1, arguments + count, std::string("--device=cuda"));
  if (chosen != arguments + count) {
    device = make_cuda_device(0);
    tokens *= 32;
    std::rotate(chosen, chosen + 1, arguments + count--);
  } else {
    device = make_cpu_device();
  }
  add_linear(tokens, hidden, 3 * hidden);
  add_linear(tokens, hidden, hidden);
  add_linear(tokens, hidden, mlp);
  add_linear(tokens, mlp, hidden);
  add_linear(tokens / 4, hidden, vocabulary);
  add_fused_linear(tokens, hidden, mlp);
  add_attention({tokens / sequence, sequence, heads, heads, head_dim}, 0);
  add_attention({tokens / sequence, sequence, heads, heads, head_dim}, 0.1f);
  add_attention({1, 1024, heads, heads, head_dim}, 0);
  add_attention({1, 4096, heads, 3, head_dim}, 0);
  add_norms();
  add_activations();
  add_embeddings();
  add_cross_entropy();
  add_elementwise();
  add_optimizers();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::AddCustomContext("device", on_gpu() ? gpu_info(0).name : cpu_backend().instructions());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
