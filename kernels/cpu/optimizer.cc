#include "kernels/optimizer.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

simd::ModelWeight model_weight(const Access& access, const Tensor& tensor) {
  if (!tensor) return {};
  if (tensor.dtype() == DType::bf16) return {.bf16 = data<BFloat16>(access, tensor)};
  return {.f16 = data<Float16>(access, tensor)};
}

void adam(const Access& access, Context& context, const AdamArgs& args) {
  const AdamStep step = adam_step(args);
  float *const weight = data<float>(access, args.weight),
               *const moment1 = data<float>(access, args.moment1),
               *const moment2 = data<float>(access, args.moment2);
  const simd::ModelWeight model = model_weight(access, args.model_weight);
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    const T* const gradient = data<T>(access, args.gradient);
    const auto& leaves = state_of(context).table->get<T>();
    parallel_elements(context, args.weight.numel(), grain_elements,
                      [&](std::int64_t begin, std::int64_t end) {
                        leaves.adam(step, weight + begin, gradient + begin, moment1 + begin,
                                    moment2 + begin, model.from(begin), end - begin);
                      });
  });
}

void sgd(const Access& access, Context& context, const SgdArgs& args) {
  const SgdStep step = sgd_step(args);
  float *const weight = data<float>(access, args.weight), *const buffer = data<float>(
                                                              access, args.momentum_buffer);
  const simd::ModelWeight model = model_weight(access, args.model_weight);
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    const T* const gradient = data<T>(access, args.gradient);
    const auto& leaves = state_of(context).table->get<T>();
    parallel_elements(
        context, args.weight.numel(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
          leaves.sgd(step, weight + begin, gradient + begin, buffer ? buffer + begin : nullptr,
                     model.from(begin), end - begin);
        });
  });
}

}  // namespace trident::cpu
