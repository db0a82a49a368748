// Matrix products on the GPU; gemm_cublaslt.cc implements them with cuBLASLt. One object belongs to
// one context. Called inside stream work. Throws Error if the library fails or has no algorithm for
// a plain product.
#pragma once

#include <functional>
#include <memory>

#include "kernels/cuda/queue.h"
#include "kernels/gemm.h"

namespace trident::cuda {

class Products {
 public:
  virtual ~Products() = default;
  // Runs the product and its bias, without the epilogue.
  virtual void run(const Queue&, const Access&, Context&, const GemmArgs&) = 0;
  // Runs the product and its epilogue in one pass. Returns false if that is not possible, or slower
  // than `unfused`; the caller then runs `unfused`, which computes the same with separate kernels.
  using Way = std::function<void(const GemmArgs&)>;
  virtual bool run_fused(const Queue&, const Access&, Context&, const GemmArgs&,
                         const Way& /*unfused*/) {
    return false;
  }
};
std::unique_ptr<Products> make_products();
int products_version();  // the library's: 130100 is 13.1.0

}  // namespace trident::cuda
