// The set-up of every kernel test: a device, on the CPU an instruction set, and an element type.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/rng.h"
#include "kernels/cpu/state.h"
#include "support/devices.h"
#include "support/random_normal.h"

namespace trident {

using Values = std::vector<double>;

struct Setup {
  On device = On::cpu;
  cpu::simd::Isa isa = cpu::simd::Isa::sse2;
  DType dtype = DType::f32;
  bool deterministic = true;
};

inline std::string name_of_setup(const testing::TestParamInfo<Setup>& info) {
  const std::string dtype(name_of(info.param.dtype));
  if (info.param.device == On::cuda) {
    return (info.param.deterministic ? "cuda_" : "cuda_fastest_") + dtype;
  }
  return std::string(info.param.device == On::guarded ? "guarded_" : "cpu_") +
         name_of(info.param.isa) + "_" + dtype;
}

// The CPU with every instruction set of this processor, the guarded device with the best one, and a
// GPU if the machine has one.
inline std::vector<Setup> all_setups() {
  std::vector<Setup> setups;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto isa : {cpu::simd::Isa::sse2, cpu::simd::Isa::avx2, cpu::simd::Isa::avx512}) {
      if (cpu::simd::supported(isa)) setups.push_back({On::cpu, isa, dtype});
    }
    setups.push_back({On::guarded, cpu::simd::best_isa(), dtype});
    for (const bool deterministic : {true, false}) {
      if (find_gpus().count > 0) setups.push_back({On::cuda, {}, dtype, deterministic});
    }
  }
  return setups;
}

// The norm of the difference divided by the norm of `want`.
inline double relative_error(const Values& got, const Values& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] != got[i]) return INFINITY;
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

class KernelTest : public testing::TestWithParam<Setup> {
 protected:
  KernelTest()
      : device(make_device(GetParam().device)),
        context(*device, 2, {.deterministic = GetParam().deterministic}),
        dtype(GetParam().dtype),
        tolerance(dtype == DType::f32   ? (GetParam().device == On::cuda ? 1e-5 : 2e-6)
                  : dtype == DType::f16 ? 1e-3
                                        : 6e-3) {
    if (GetParam().device != On::cuda) cpu::use_isa(context, GetParam().isa);
  }

  // Normal values that the element type holds exactly.
  Values random(std::int64_t n, std::string_view name, double deviation = 1) const {
    return random_of(dtype, n, name, deviation);
  }
  static Values random_of(DType type, std::int64_t n, std::string_view name, double deviation = 1) {
    Values values(static_cast<std::size_t>(n));
    const std::uint64_t key = random_key(1, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(deviation * random_normal(key, i));
      values[i] = held(type, value);
    }
    return values;
  }

  static float held(DType type, float value) {
    if (type == DType::bf16) return static_cast<float>(BFloat16(value));
    return type == DType::f16 ? static_cast<float>(Float16(value)) : value;
  }

  Tensor put(const Values& values, Shape shape) { return put_as(dtype, values, shape); }
  Tensor put_as(DType type, const Values& values, Shape shape) {
    if (type == DType::bf16) return put_typed<BFloat16>(values, shape);
    if (type == DType::f16) return put_typed<Float16>(values, shape);
    if (type == DType::f32) return put_typed<float>(values, shape);
    if (type == DType::i32) return put_typed<std::int32_t>(values, shape);
    if (type == DType::i64) return put_typed<std::int64_t>(values, shape);
    return put_typed<double>(values, shape);
  }
  Tensor empty(Shape shape) { return context.empty(shape, dtype, Category::activation); }
  Tensor empty_f32(Shape shape) { return context.empty(shape, DType::f32, Category::activation); }

  Values get(const Tensor& tensor) {
    if (tensor.dtype() == DType::bf16) return get_typed<BFloat16>(tensor);
    if (tensor.dtype() == DType::f16) return get_typed<Float16>(tensor);
    if (tensor.dtype() == DType::f32) return get_typed<float>(tensor);
    return get_typed<double>(tensor);
  }

  void expect_near(const Tensor& got, const Values& want, const char* what) {
    expect_near(got, want, what, tolerance);
  }
  void expect_near(const Tensor& got, const Values& want, const char* what, double limit) {
    EXPECT_LT(relative_error(get(got), want), limit) << what << " " << got.shape().to_string();
  }

  std::unique_ptr<Device> device;
  Context context;
  DType dtype;
  double tolerance;

 private:
  template <class T>
  Tensor put_typed(const Values& values, Shape shape) {
    std::vector<T> typed;
    for (const double value : values) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        typed.push_back(T(static_cast<float>(value)));
      } else {
        typed.push_back(static_cast<T>(value));
      }
    }
    return context.from_host<T>(shape, typed, Category::activation);
  }
  template <class T>
  Values get_typed(const Tensor& tensor) {
    Values values;
    for (const T value : context.to_host<T>(tensor)) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        values.push_back(static_cast<float>(value));
      } else {
        values.push_back(static_cast<double>(value));
      }
    }
    return values;
  }
};

#define TRIDENT_KERNEL_SUITE(Suite) \
  INSTANTIATE_TEST_SUITE_P(Kernels, Suite, testing::ValuesIn(all_setups()), name_of_setup)

}  // namespace trident
