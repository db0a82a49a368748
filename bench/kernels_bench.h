// The helpers of the cases of kernels_bench.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "core/context.h"
#include "kernels/backend.h"

namespace trident {

// The device of the command line, which is set before any case is added.
extern std::unique_ptr<Device> bench_device;
extern std::int64_t tokens;
bool on_gpu();
inline constexpr std::int64_t hidden = 768, mlp = 3072, vocabulary = 50304, heads = 12,
                              sequence = 256, head_dim = 64;

struct Bench {
  // On a GPU it uses the kernel options of training unless others are requested.
  explicit Bench(int threads)
      : context(*bench_device, threads,
                {.deterministic = bench_device->kind() != DeviceKind::cuda}) {}

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

double bytes_of(std::initializer_list<Tensor> operands);

using Make = std::function<Work(Bench&, DType)>;

enum class Types { both, f32 };

void add_case(const std::string& name, Types types, const Make& make);

// Adds the cases of a family. A linear layer goes from k to n columns.
void add_linear(std::int64_t rows, std::int64_t k, std::int64_t n);
void add_fused_linear(std::int64_t rows, std::int64_t k, std::int64_t n);
void add_attention(const AttentionShape& shape, float probability, std::int64_t window = 0);
// Linear layers from k to n columns of several experts, and one layer with as many rows.
void add_experts(std::int64_t experts, std::int64_t rows_each, std::int64_t k, std::int64_t n);
void add_norms();
void add_activations();
void add_embeddings();
void add_cross_entropy();
void add_elementwise();
void add_optimizers();

}  // namespace trident
