#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model_weight.cuh"

namespace trident::cuda {
namespace {

template <class T, class M>
struct Adam {
  float* weight;
  const T* gradient;
  float *moment1, *moment2;
  M model;
  float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, inverse_root_correction2, epsilon, decay_in_gradient;

  template <int N>
  __device__ void run(std::int64_t i) const {
    float w[N], g[N], m[N], v[N];
    load(weight + i, w);
    load(gradient + i, g);
    load(moment1 + i, m);
    load(moment2 + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float x = g[j] * gradient_scale;
      if (decay_in_gradient != 0) x = fmaf(w[j], decay_in_gradient, x);
      m[j] = fmaf(m[j], beta1, x * one_minus_beta1);
      v[j] = fmaf(v[j], beta2, x * x * one_minus_beta2);
      const float root = fmaf(sqrtf(v[j]), inverse_root_correction2, epsilon);
      w[j] = w[j] * decay - step_size * m[j] / root;
    }
    store(moment1 + i, m);
    store(moment2 + i, v);
    store(weight + i, w);
    model.put(i, w);
  }
};

template <class T, class M>
struct Sgd {
  float* weight;
  const T* gradient;
  float* buffer;  // null without momentum
  M model;
  float gradient_scale, decay, momentum, learning_rate;
  bool first;

  template <int N>
  __device__ void run(std::int64_t i) const {
    float w[N], g[N];
    load(weight + i, w);
    load(gradient + i, g);
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] *= gradient_scale;
    if (buffer) {
      if (!first) {
        float b[N];
        load(buffer + i, b);
#pragma unroll
        for (int j = 0; j < N; ++j) g[j] = fmaf(b[j], momentum, g[j]);
      }
      store(buffer + i, g);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] = w[j] * decay - learning_rate * g[j];
    store(weight + i, w);
    model.put(i, w);
  }
};

}  // namespace

void adam(const Access& access, Context&, const AdamArgs& args) {
  const double lr = args.learning_rate, beta1 = args.beta1, beta2 = args.beta2;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(args.step));
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    by_model_weight(access, args.model_weight, [&]<class M>(M model) {
      const Adam<T, M> f{
          .weight = data<float>(access, args.weight),
          .gradient = data<T>(access, args.gradient),
          .moment1 = data<float>(access, args.moment1),
          .moment2 = data<float>(access, args.moment2),
          .model = model,
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
      elementwise<pack_size_of<T, typename M::Element>>(
          queue_of(access), args.weight.numel(),
          aligned(f.weight, f.gradient, f.moment1, f.moment2, model.to), f);
    });
  });
}

void sgd(const Access& access, Context&, const SgdArgs& args) {
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    by_model_weight(access, args.model_weight, [&]<class M>(M model) {
      const Sgd<T, M> f{.weight = data<float>(access, args.weight),
                        .gradient = data<T>(access, args.gradient),
                        .buffer = data<float>(access, args.momentum_buffer),
                        .model = model,
                        .gradient_scale = args.gradient_scale,
                        .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay),
                        .momentum = static_cast<float>(args.momentum),
                        .learning_rate = static_cast<float>(args.learning_rate),
                        .first = args.step == 1};
      elementwise<pack_size_of<T, typename M::Element>>(
          queue_of(access), args.weight.numel(), aligned(f.weight, f.gradient, f.buffer, model.to),
          f);
    });
  });
}

}  // namespace trident::cuda
