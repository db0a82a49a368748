// Checks of kernel arguments. They run on the host, before the kernel is enqueued. A failed check
// throws Error, for example "gemm: got b [3, 4] bf16, need fp32".
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "core/tensor.h"
#include "kernels/head_columns.h"

namespace trident {

// The checks of one kernel, whose name begins each error. The name must outlive the object.
class Check {
 public:
  explicit Check(std::string_view operation) : operation_(operation) {}

  // `got` and `need` are texts, or convert to std::string, which happens in an error only.
  template <class Got, class Need>
  void that(bool right, const Got& got, const Need& need) const {
    if (!right) fail(std::string(got), std::string(need));
  }
  void defined(const Tensor& x, std::string_view name) const {
    if (!x.defined()) fail("no " + std::string(name), "one");
  }
  void shape(const Tensor& x, std::string_view name, const Shape& need) const {
    defined(x, name);
    if (x.shape() != need) fail(describe(x, name), need.to_string());
  }
  void rank(const Tensor& x, std::string_view name, int need) const {
    defined(x, name);
    if (x.shape().rank() != need) fail(describe(x, name), std::to_string(need) + " dimensions");
  }
  void dtype(const Tensor& x, std::string_view name, DType need) const {
    defined(x, name);
    if (x.dtype() != need) fail(describe(x, name), std::string(name_of(need)));
  }
  // Requires fp32, bf16 or fp16, the types that kernels compute on.
  void compute_dtype(const Tensor& x, std::string_view name) const {
    defined(x, name);
    if (x.dtype() != DType::f32 && x.dtype() != DType::bf16 && x.dtype() != DType::f16) {
      fail(describe(x, name), "fp32, bf16 or fp16");
    }
  }
  void count(const Tensor& x, std::string_view name, std::int64_t need) const {
    defined(x, name);
    if (x.numel() != need) fail(describe(x, name), std::to_string(need) + " elements");
  }

  // "b [3, 4] bf16", made where it is needed.
  struct TensorText {
    const Tensor& x;
    std::string_view name;
    operator std::string() const {  // NOLINT(google-explicit-constructor)
      return std::string(name) + " " + x.shape().to_string() + " " +
             std::string(name_of(x.dtype()));
    }
    std::string operator+(const std::string& more) const { return std::string(*this) + more; }
  };
  static TensorText describe(const Tensor& x, std::string_view name) { return {x, name}; }

 private:
  [[noreturn]] void fail(const std::string& got, const std::string& need) const {
    throw Error(std::string(operation_) + ": got " + got + ", need " + need);
  }

  std::string_view operation_;
};

// Error unless `x` has `heads` heads of `dim` elements in each of `rows` rows, in `dtype`.
inline void check_heads(const Check& check, const HeadColumns& x, const char* name, DType dtype,
                        std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  check.dtype(x.rows, name, dtype);
  check.rank(x.rows, name, 2);
  const Check::TensorText got = Check::describe(x.rows, name);
  if (x.rows.dim(0) != rows) check.that(false, got, std::to_string(rows) + " rows");
  if (x.begin < 0 || x.begin + heads * dim > x.rows.dim(1)) {
    check.that(false, got + " from column " + std::to_string(x.begin),
               std::to_string(heads) + " heads of " + std::to_string(dim));
  }
}

}  // namespace trident
