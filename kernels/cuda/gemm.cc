#include "kernels/gemm.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/state.h"
#include "kernels/gemm_unfused.h"

namespace trident::cuda {

void gemm(const Access& access, Context& context, const GemmArgs& args) {
  if (args.c.numel() == 0) return;
  const Queue& queue = queue_of(access);
  Products& products = state_of(context).products();
  if (args.alone()) return products.run(queue, access, context, args);
  const auto unfused = [&](const GemmArgs& all) {
    gemm_unfused(cuda_backend(), access, context, all,
                 [&](const GemmArgs& alone) { products.run(queue, access, context, alone); });
  };
  if (!products.run_fused(queue, access, context, args, unfused)) unfused(args);
}

}  // namespace trident::cuda
