// Cases of kernels_bench: products of a mixture of experts, beside one product of the same rows.
#include "bench/kernels_bench.h"

namespace trident {

void add_experts(std::int64_t experts, std::int64_t rows_each, std::int64_t k, std::int64_t n) {
  const std::int64_t rows = experts * rows_each;
  const std::string size = std::to_string(experts) + "x" + std::to_string(rows_each) + "x" +
                           std::to_string(k) + "x" + std::to_string(n);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k * n);
  struct Operands {
    Tensor x, y, w, ends;
  };
  const auto operands = [=](Bench& bench, DType dtype, DType of_weights) {
    std::vector<std::int64_t> ends;
    for (std::int64_t e = 0; e < experts; ++e) ends.push_back((e + 1) * rows_each);
    return Operands{bench.normal({rows, k}, dtype), bench.normal({rows, n}, dtype),
                    bench.normal({experts * n, k}, of_weights).view({experts, n, k}),
                    bench.context.from_host<std::int64_t>({experts}, ends, Category::activation)};
  };
  add_case("grouped_gemm/forward/" + size, Types::both, [=](Bench& bench, DType dtype) -> Work {
    const Operands o = operands(bench, dtype, dtype);
    return {flops, bytes_of({o.x, o.y, o.w}), [&bench, o] {
              grouped_gemm(bench.context,
                           {.a = o.x, .b = o.w, .c = o.y, .ends = o.ends, .transpose_b = true});
            }};
  });
  add_case("grouped_gemm/input_gradient/" + size, Types::both,
           [=](Bench& bench, DType dtype) -> Work {
             const Operands o = operands(bench, dtype, dtype);
             return {flops, bytes_of({o.x, o.y, o.w}), [&bench, o] {
                       grouped_gemm(bench.context, {.a = o.y, .b = o.w, .c = o.x, .ends = o.ends});
                     }};
           });
  add_case("grouped_gemm/weight_gradient/" + size, Types::both,
           [=](Bench& bench, DType dtype) -> Work {
             const Operands o = operands(bench, dtype, DType::f32);
             return {flops, bytes_of({o.x, o.y, o.w, o.w}), [&bench, o] {
                       grouped_weight_gemm(
                           bench.context,
                           {.a = o.y, .b = o.x, .c = o.w, .ends = o.ends, .accumulate = true});
                     }};
           });
  add_linear(rows, k, n);
}

}  // namespace trident
