// Matrix products on the GPU; gemm_cublaslt.cc has them from cuBLASLt.
#pragma once

#include <memory>

#include "kernels/cuda/queue.h"
#include "kernels/gemm.h"

namespace trident::cuda {

class Products {
 public:
  virtual ~Products() = default;
  virtual void run(const Queue&, const Access&, Context&, const GemmArgs&) = 0;
};
std::unique_ptr<Products> make_products();

}  // namespace trident::cuda
