// Matrix products on the GPU; gemm_cublaslt.cc has them from cuBLASLt.
#pragma once

#include <memory>

#include "kernels/cuda/queue.h"
#include "kernels/gemm.h"

namespace trident::cuda {

class Products {
 public:
  virtual ~Products() = default;
  // The product with its bias.
  virtual void run(const Queue&, const Access&, Context&, const GemmArgs&) = 0;
  // With what goes along, in one pass; false where that is not possible, and nothing was done.
  virtual bool run_fused(const Queue&, const Access&, Context&, const GemmArgs&) { return false; }
};
std::unique_ptr<Products> make_products();

}  // namespace trident::cuda
