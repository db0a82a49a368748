// Cases of kernels_bench: products, alone and fused, and attention.
#include "bench/kernels_bench.h"

namespace trident {

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

// Operations fused with a product, in one pass where the backend has one.
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

void add_attention(const AttentionShape& shape, float probability, std::int64_t window) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const std::string size = std::to_string(shape.batch) + "x" + std::to_string(shape.sequence) +
                           "x" + std::to_string(shape.heads) + "x" +
                           std::to_string(shape.head_dim) + (probability > 0 ? "/dropout" : "") +
                           (window > 0 ? "/window_" + std::to_string(window) : "");
  // The FLOPs of one product of queries and keys, over the pairs that see each other.
  const double unseen = window > 0 ? d(shape.sequence - window) : 0;
  const double pairs = (d(shape.sequence) * d(shape.sequence + 1) - unseen * (unseen + 1)) / 2;
  const double product = 2 * d(shape.batch * shape.heads * shape.head_dim) * pairs;
  for (const bool backward : {false, true}) {
    add_case(std::string("attention/") + (backward ? "backward/" : "forward/") + size, Types::both,
             [=](Bench& bench, DType dtype) -> Work {
               const std::int64_t rows = shape.batch * shape.sequence,
                                  width = shape.heads * shape.head_dim;
               const Tensor qkv = bench.normal({rows, shape.row()}, dtype);
               const Tensor grad_qkv = bench.empty({rows, shape.row()}, dtype);
               AttentionBackwardArgs args;
               args.forward.shape = shape;
               args.forward.in = split_qkv(shape, qkv);
               args.forward.out = bench.empty({rows, width}, dtype);
               args.forward.log_sum_exp =
                   bench.empty({shape.batch, shape.heads, shape.sequence}, DType::f32);
               args.forward.mask.window = window;
               args.grad_out = bench.normal({rows, width}, dtype);
               args.grad = split_qkv(shape, grad_qkv);
               if (probability > 0) {
                 const std::vector<std::int64_t> samples(static_cast<std::size_t>(shape.batch), 1);
                 args.forward.dropout = {.probability = probability,
                                         .key = 1,
                                         .samples = bench.context.from_host<std::int64_t>(
                                             {shape.batch}, samples, Category::activation)};
               }
               const auto forward = [&bench, args] {
                 attention_forward(bench.context, args.forward);
               };
               forward();
               const Tensor &out = args.forward.out, &sums = args.forward.log_sum_exp;
               if (!backward) return {2 * product, bytes_of({qkv, out, sums}), forward};
               return {5 * product, bytes_of({qkv, out, sums, args.grad_out, grad_qkv}),
                       [&bench, args] { attention_backward(bench.context, args); }};
             });
  }
}

}  // namespace trident
