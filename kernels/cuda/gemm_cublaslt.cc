// Matrix products by cuBLASLt. cuBLASLt reads matrices in column-major order. It therefore computes
// the row-major c = op(a) op(b) as cᵀ = op(b)ᵀ op(a)ᵀ: its A is our b, its B is our a, and no data
// moves.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

constexpr int candidates = 8;  // number of algorithms to time

// Name of an epilogue, for the log.
std::string name_of_epilogue(int epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return "none";
    case CUBLASLT_EPILOGUE_BIAS:
      return "bias";
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return "GELU";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return "bias and GELU";
    case CUBLASLT_EPILOGUE_DGELU:
      return "GELU's gradient";
    case CUBLASLT_EPILOGUE_BGRADB:
      return "bias gradient";
    default:
      return std::to_string(epilogue);
  }
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(std::string("cublasLt: ") + what + ": " + cublasLtGetStatusString(status));
  }
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using LtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t name, const T& value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), name, &value, sizeof value),
        "an attribute of a product");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof value),
        "a preference");
}

Layout make_layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  Layout layout;  // a row of `columns` contiguous elements is a column of cuBLASLt
  check(
      cublasLtMatrixLayoutCreate(layout.out(), type_of(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
      "a layout");
  return layout;
}

struct Operands {
  const void *a, *b, *bias;
  void *c, *auxiliary;  // pre_activation or gelu_input
  float* bias_gradient;
};

struct Plan {
  Description description;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

class LtProducts final : public Products {
 public:
  LtProducts() { check(cublasLtCreate(handle_.out()), "a handle"); }

  void run(const Queue& queue, const Access& access, Context& context,
           const GemmArgs& args) override {
    if (args.bias && args.bias.dtype() == args.c.dtype() && !without("epilogues") &&
        multiply(queue, access, context, args, CUBLASLT_EPILOGUE_BIAS, nullptr)) {
      return;
    }
    GemmArgs product = args;
    product.bias = Tensor();
    if (!multiply(queue, access, context, product, CUBLASLT_EPILOGUE_DEFAULT, nullptr)) {
      throw Error("cublasLt: no algorithm for a product [" + std::to_string(args.c.dim(0)) + ", " +
                  std::to_string(args.c.dim(1)) + "] of " + std::string(name_of(args.a.dtype())));
    }
    if (args.bias) add_bias(access, context, args.c, args.bias, args.c);
  }

  bool run_fused(const Queue& queue, const Access& access, Context& context, const GemmArgs& args,
                 const Way& unfused) override {
    if (without("epilogues") || (args.bias && args.bias.dtype() != args.c.dtype())) return false;
    // cuBLASLt needs auxiliary rows of a multiple of 8 elements (cublasLt.h, EPILOGUE_AUX_LD).
    if ((args.pre_activation || args.gelu_input) && args.c.dim(1) % 8 != 0) return false;
    if (args.pre_activation) {
      return multiply(queue, access, context, args,
                      args.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX,
                      nullptr, unfused);
    }
    if (args.gelu_input) {
      return multiply(queue, access, context, args, CUBLASLT_EPILOGUE_DGELU, nullptr, unfused);
    }
    // cuBLASLt overwrites the bias gradient, which is fp32 if c is.
    if (args.bias || args.c.dtype() != DType::f32) return false;
    const std::int64_t m = args.c.dim(0);
    const Tensor sums = context.empty({m}, DType::f32, Category::workspace);
    if (!multiply(queue, access, context, args, CUBLASLT_EPILOGUE_BGRADB, data<float>(access, sums),
                  unfused)) {
      return false;
    }
    add(access, context, sums, args.bias_gradient);
    return true;
  }

 private:
  // Returns false if there is no algorithm, or `unfused` is faster than all of them.
  bool multiply(const Queue& queue, const Access& access, Context& context, const GemmArgs& args,
                cublasLtEpilogue_t epilogue, float* bias_gradient, const Way& unfused = {}) {
    const Operands operands{.a = TensorAddress::of(access, args.a),
                            .b = TensorAddress::of(access, args.b),
                            .bias = TensorAddress::of(access, args.bias),
                            .c = TensorAddress::of(access, args.c),
                            .auxiliary = TensorAddress::of(
                                access, args.gelu_input ? args.gelu_input : args.pre_activation),
                            .bias_gradient = bias_gradient};
    const ProductKey key = key_of(access, args, epilogue, context.kernel_options().tf32);
    if (!workspace_) {
      workspace_ = context.empty({static_cast<std::int64_t>(products_workspace)}, DType::u8,
                                 Category::workspace);
    }
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      found = plans_.emplace(key, make_plan(queue, access, context, args, key, operands, unfused))
                  .first;
    }
    if (!found->second) return false;
    Plan& plan = *found->second;
    point(plan.description, key, operands);
    const cublasStatus_t status =
        launch(queue, access, plan, plan.algorithm, key.accumulate, operands, operands.c);
    if (status != CUBLAS_STATUS_SUCCESS && epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      refused(key, cublasLtGetStatusString(status));
      found->second = std::nullopt;  // separate kernels from now on
      return false;
    }
    check(status, "a product");
    return true;
  }

  static void refused(const ProductKey& key, const std::string& why) {
    log_refusal("cublasLt: a product " + std::to_string(key.m) + " x " + std::to_string(key.n) +
                " x " + std::to_string(key.k) + " of " + std::string(name_of(key.input)) + " to " +
                std::string(name_of(key.output)) + ", epilogue " + name_of_epilogue(key.epilogue) +
                ": " + why);
  }

  static void point(const Description& description, const ProductKey& key,
                    const Operands& operands) {
    if (operands.bias != nullptr) {
      set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    if (operands.bias_gradient != nullptr) {
      set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias_gradient);
    }
    if (operands.auxiliary != nullptr) {
      set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.auxiliary);
      set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
    }
  }

  cublasStatus_t launch(const Queue& queue, const Access& access, const Plan& plan,
                        const cublasLtMatmulAlgo_t& algorithm, bool accumulate,
                        const Operands& operands, void* c) {
    const float one = 1, beta = accumulate ? 1.0f : 0.0f;
    return cublasLtMatmul(handle_.get(), plan.description.get(), &one, operands.b, plan.a.get(),
                          operands.a, plan.b.get(), &beta, c, plan.c.get(), c, plan.c.get(),
                          &algorithm, TensorAddress::of(access, workspace_), products_workspace,
                          queue.stream);
  }

  static Description describe(const ProductKey& key, const Operands& operands) {
    Description description;
    check(cublasLtMatmulDescCreate(description.out(),
                                   key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F),
          "a product's description");
    const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(key.transpose_b));
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(key.transpose_a));
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(key.epilogue));
    point(description, key, operands);
    return description;
  }

  static Preference preference_of(const ProductKey& key) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.out()), "preferences");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, products_workspace);
    // A product with split k may add its parts in the output type; 16 bits are too few for that.
    if (key.output != DType::f32) {
      set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
          std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    }
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
    return preference;
  }

  // Returns nullopt if cuBLASLt has no algorithm, or `unfused` is faster.
  std::optional<Plan> make_plan(const Queue& queue, const Access& access, Context& context,
                                const GemmArgs& args, const ProductKey& key,
                                const Operands& operands, const Way& unfused) {
    Plan plan{.description = describe(key, operands),
              .a = make_layout(key.input, args.b.dim(0), args.b.dim(1)),
              .b = make_layout(key.input, args.a.dim(0), args.a.dim(1)),
              .c = make_layout(key.output, key.m, key.n),
              .algorithm = {}};
    const Preference preference = preference_of(key);
    std::array<cublasLtMatmulHeuristicResult_t, candidates> results{};
    int count = 0;
    // Deterministic mode uses one algorithm for a shape in every run; timing could choose another
    // one the next time.
    const bool by_time = !context.kernel_options().deterministic && !without("timing");
    const int wanted = by_time ? candidates : 1;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), plan.description.get(), plan.a.get(), plan.b.get(), plan.c.get(),
        plan.c.get(), preference.get(), wanted, results.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
      refused(key, cublasLtGetStatusString(status));
      return std::nullopt;
    }
    plan.algorithm = results[0].algo;
    if (!by_time || (count == 1 && !unfused)) return plan;

    // Timing runs the product many times, so an accumulating product writes to a spare result.
    const auto like = [&](const Tensor& x) {
      return context.empty(x.shape(), x.dtype(), Category::workspace);
    };
    GemmArgs spare = args;
    if (args.accumulate) spare.c = like(args.c);
    if (args.bias_gradient) spare.bias_gradient = like(args.bias_gradient);
    const double time = choose_by_time(queue, access, plan, args.accumulate, operands,
                                       TensorAddress::of(access, spare.c), results, count);
    if (std::isinf(time)) {
      refused(key, "no algorithm runs");
      return std::nullopt;
    }
    if (!unfused) return plan;
    const double other = least_time(queue, [&] {
      unfused(spare);
      return true;
    });
    if (time < other) return plan;
    refused(key, "slower than in steps, " + std::to_string(1e3 * time) + " against " +
                     std::to_string(1e3 * other) + " us");
    return std::nullopt;
  }

  // Milliseconds that `run` takes: the lesser of two measurements after one warm-up call, because
  // clocks rise and another rank may use the GPU. Infinity if `run` returns false.
  template <class Run>
  static double least_time(const Queue& queue, const Run& run) {
    constexpr int runs = 3;
    double best = std::numeric_limits<double>::infinity();
    if (!run()) return best;
    Event begin(true), end(true);
    for (int i = 0; i < 2; ++i) {
      begin.record(queue);
      for (int k = 0; k < runs; ++k) run();
      end.record(queue);
      end.synchronize();
      best = std::min(best, end.milliseconds_since(begin) / runs);
    }
    return best;
  }

  // Puts the fastest algorithm into the plan. Returns its time in milliseconds, infinity if none
  // runs.
  double choose_by_time(const Queue& queue, const Access& access, Plan& plan, bool accumulate,
                        const Operands& operands, void* c,
                        const std::array<cublasLtMatmulHeuristicResult_t, candidates>& results,
                        int count) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t& algorithm = results[static_cast<std::size_t>(i)].algo;
      const double time = least_time(queue, [&] {
        return launch(queue, access, plan, algorithm, accumulate, operands, c) ==
               CUBLAS_STATUS_SUCCESS;
      });
      if (time < best) {
        best = time;
        plan.algorithm = algorithm;
      }
    }
    return best;
  }

  LtHandle handle_;
  Tensor workspace_;
  std::map<ProductKey, std::optional<Plan>> plans_;
};

}  // namespace

std::unique_ptr<Products> make_products() {
  return std::make_unique<LtProducts>();
}
int products_version() {
  return static_cast<int>(cublasLtGetVersion());
}

}  // namespace trident::cuda
