// Compares the GPU workspace that a plan counts (kernels/cuda/planning_backend.cc), operation by
// operation, with the workspace that the kernels take. The sizes are at and next to the borders of
// the kernels' chunks.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda_device.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/grouped_gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/rotary.h"
#include "kernels/routing.h"

namespace trident::cuda {
namespace {

struct Seat {
  Context& context;
  // A tensor of zeros, which serve as ids and counts as well.
  Tensor zeros(Shape shape, DType dtype = DType::f32) const {
    Tensor tensor = context.empty(std::move(shape), dtype, Category::activation);
    fill(context, tensor, 0);
    return tensor;
  }
};
using Operation = std::function<void(const Seat&)>;

std::int64_t workspace_of(Device& device, const KernelOptions& options, const Operation& run) {
  Context context(device, 1, options);
  run({context});
  context.synchronize();
  return context.ledger().figures().peak[static_cast<std::size_t>(Category::workspace)];
}

void expect_planned(const std::string& name, const Operation& run, bool takes_some = true) {
  const auto planning = make_planning_device(DeviceKind::cuda);
  const auto gpu = make_cuda_device(0);
  for (const bool deterministic : {true, false}) {
    const KernelOptions options{.deterministic = deterministic};
    const std::int64_t planned = workspace_of(*planning, options, run);
    EXPECT_EQ(planned, workspace_of(*gpu, options, run)) << name << ' ' << deterministic;
    EXPECT_EQ(planned > 0, takes_some) << name << ' ' << deterministic;
  }
}

constexpr auto float_types = {DType::f32, DType::bf16, DType::f16};

TEST(CudaPlanning, CountsTheWorkspaceOfProducts) {
  for (const DType dtype : float_types) {
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t tokens : {1, 40, 1100}) {
        const std::string name =
            std::string(name_of(dtype)) + (accumulate ? " += " : " = ") + std::to_string(tokens);
        expect_planned(name, [&](const Seat& s) {
          gemm(s.context, {.a = s.zeros({tokens, 24}, dtype),
                           .b = s.zeros({tokens, 16}, dtype),
                           .c = s.zeros({24, 16}, DType::f32),
                           .transpose_a = true,
                           .accumulate = accumulate});
        });
        expect_planned(name + " with the bias's gradient", [&](const Seat& s) {
          gemm(s.context, {.a = s.zeros({tokens, 24}, dtype),
                           .b = s.zeros({tokens, 16}, dtype),
                           .c = s.zeros({24, 16}, DType::f32),
                           .transpose_a = true,
                           .accumulate = accumulate,
                           .bias_gradient = s.zeros({24}, DType::f32)});
        });
      }
    }
  }
}

TEST(CudaPlanning, CountsTheWorkspaceOfExperts) {
  for (const std::int64_t rows : {1, 64, 200}) {
    expect_planned("grouped " + std::to_string(rows), [&](const Seat& s) {
      grouped_gemm(s.context, {.a = s.zeros({rows, 3}),
                               .b = s.zeros({5, 3, 4}),
                               .c = s.zeros({rows, 4}),
                               .ends = s.zeros({5}, DType::i64)});
    });
    expect_planned("routing " + std::to_string(rows), [&](const Seat& s) {
      routing_sums(s.context, {.shape = {.experts = 4, .topk = 2},
                               .logits = s.zeros({rows, 4}),
                               .experts = s.zeros({rows, 2}, DType::i32),
                               .counts = s.zeros({1, 4}, DType::i64),
                               .probabilities = s.zeros({1, 4}, DType::f64),
                               .squares = s.zeros({rows}),
                               .sequence = rows});
    });
  }
}

TEST(CudaPlanning, CountsTheWorkspaceOfSums) {
  for (const std::int64_t rows : {1, 31, 33, 4096}) {
    for (const std::int64_t columns : {8, 255, 257}) {
      const std::string name = std::to_string(rows) + " x " + std::to_string(columns);
      expect_planned(name + " bias", [&](const Seat& s) {
        bias_backward(s.context, s.zeros({rows, columns}), s.zeros({columns}));
      });
      expect_planned(name + " norm", [&](const Seat& s) {
        norm_backward_weight(s.context, {.grad_y = s.zeros({rows, columns}),
                                         .x = s.zeros({rows, columns}),
                                         .mean = s.zeros({rows}),
                                         .rstd = s.zeros({rows}),
                                         .grad_weight = s.zeros({columns}),
                                         .grad_bias = s.zeros({columns})});
      });
      expect_planned(
          name + " sum",
          [&](const Seat& s) {
            sum(s.context, s.zeros({rows * columns}), s.zeros({1}, DType::f64));
          },
          rows * columns > 4096);
    }
  }
}

TEST(CudaPlanning, CountsTheWorkspaceOfAttentionAndPositions) {
  const AttentionShape shape{.batch = 2, .sequence = 37, .heads = 4, .groups = 2, .head_dim = 16};
  const std::int64_t rows = shape.batch * shape.sequence, wide = shape.heads * shape.head_dim;
  // In 16 bits cuDNN takes more workspace, but the emulation has no cuDNN.
  expect_planned("attention", [&](const Seat& s) {
    attention_backward(
        s.context, {.forward = {.shape = shape,
                                .in = split_qkv(shape, s.zeros({rows, shape.row()})),
                                .out = s.zeros({rows, wide}),
                                .log_sum_exp = s.zeros({shape.batch, shape.heads, shape.sequence})},
                    .grad_out = s.zeros({rows, wide}),
                    .grad = split_qkv(shape, s.zeros({rows, shape.row()}))});
  });
  expect_planned("rotary", [&](const Seat& s) {
    RotaryArgs args = rotary_of(shape, s.zeros({rows, shape.row()}));
    rotary(s.context, args);
    args.inverse = true;
    rotary(s.context, args);
  });
}

TEST(CudaPlanning, CountsTheWorkspaceOfAdafactor) {
  for (const std::int64_t rows : {3, 64, 129}) {
    for (const std::int64_t columns : {7, 64}) {
      for (const std::int64_t begin : {std::int64_t{0}, columns / 2}) {
        const std::int64_t n = rows * columns - begin;
        const std::string name = std::to_string(rows) + " x " + std::to_string(columns) + " from " +
                                 std::to_string(begin);
        expect_planned(name, [&](const Seat& s) {
          const AdafactorPart part{
              .weight = s.zeros({n}), .gradient = s.zeros({n}), .begin = begin, .columns = columns};
          adafactor_squares(s.context, {.part = part,
                                        .rows = s.zeros({rows}, DType::f64),
                                        .columns = s.zeros({columns}, DType::f64),
                                        .weights = s.zeros({1}, DType::f64)});
          adafactor_size(s.context, {.part = part,
                                     .factors = s.zeros({rows}),
                                     .column_state = s.zeros({columns}),
                                     .size = s.zeros({1}, DType::f64)});
        });
      }
    }
  }
}

// The sort's workspace is CUB's own choice. The plan counts 8 bytes a token, about as much as CUB
// takes.
TEST(CudaPlanning, CountsAtLeastTheWorkspaceOfTheEmbedding) {
  const auto planning = make_planning_device(DeviceKind::cuda);
  const auto gpu = make_cuda_device(0);
  for (const std::int64_t tokens : {1, 63, 65, 2000}) {
    const auto run = [&](const Seat& s) {
      embedding_backward(s.context, {.ids = s.zeros({tokens}, DType::i32),
                                     .grad_out = s.zeros({tokens, 24}),
                                     .grad_table = s.zeros({50, 24})});
    };
    const std::int64_t planned = workspace_of(*planning, {}, run);
    const std::int64_t taken = workspace_of(*gpu, {}, run);
    EXPECT_GE(planned, taken) << tokens;
    EXPECT_LE(planned, taken + 8 * tokens + 512) << tokens;
  }
}

}  // namespace
}  // namespace trident::cuda
