// Matrix products on the GPU; gemm_cublaslt.cc has them from cuBLASLt.
#pragma once

#include <functional>
#include <memory>

#include "kernels/cuda/queue.h"
#include "kernels/gemm.h"

namespace trident::cuda {

class Products {
 public:
  virtual ~Products() = default;
  // The product with its bias.
  virtual void run(const Queue&, const Access&, Context&, const GemmArgs&) = 0;
  // With what goes along, in one pass; false where that is not possible, or slower than `in_steps`,
  // which does the same, and nothing was done.
  using Way = std::function<void(const GemmArgs&)>;
  virtual bool run_fused(const Queue&, const Access&, Context&, const GemmArgs&,
                         const Way& /*in_steps*/) {
    return false;
  }
};
std::unique_ptr<Products> make_products();
int products_version();  // of the library: 130100 is 13.1.0

}  // namespace trident::cuda
