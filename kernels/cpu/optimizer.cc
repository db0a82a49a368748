#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

simd::ModelWeight model_weight(const Access& access, const Tensor& tensor) {
  if (!tensor) return {};
  if (tensor.dtype() == DType::bf16) return {.bf16 = data<BFloat16>(access, tensor)};
  return {.f16 = data<Float16>(access, tensor)};
}

void adam(const Access& access, Context& context, const AdamArgs& args) {
  const double lr = args.learning_rate, beta1 = args.beta1, beta2 = args.beta2;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(args.step));
  const simd::AdamStep step = {
      .gradient_scale = args.gradient_scale,
      .decay = args.decoupled ? static_cast<float>(1 - lr * args.weight_decay) : 1.0f,
      .beta1 = static_cast<float>(beta1),
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(lr / correction1),
      .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
      .epsilon = static_cast<float>(args.epsilon),
      .decay_in_gradient = args.decoupled ? 0.0f : static_cast<float>(args.weight_decay)};
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
  const simd::SgdStep step = {
      .gradient_scale = args.gradient_scale,
      .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay),
      .momentum = static_cast<float>(args.momentum),
      .learning_rate = static_cast<float>(args.learning_rate),
      .first = args.step == 1};
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
