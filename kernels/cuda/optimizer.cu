#include "kernels/optimizer.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model_weight.cuh"
#include "kernels/optimizer_steps.h"

namespace trident::cuda {
namespace {

template <class T, class M>
struct Adam {
  float* weight;
  const T* gradient;
  float *moment1, *moment2;
  M model;
  AdamStep step;

  template <int N>
  __device__ void run(std::int64_t i) const {
    float w[N], g[N], m[N], v[N];
    load(weight + i, w);
    load(gradient + i, g);
    load(moment1 + i, m);
    load(moment2 + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float x = g[j] * step.gradient_scale;
      if (step.decay_in_gradient != 0) x = fmaf(w[j], step.decay_in_gradient, x);
      m[j] = fmaf(m[j], step.beta1, x * step.one_minus_beta1);
      v[j] = fmaf(v[j], step.beta2, x * x * step.one_minus_beta2);
      const float root = fmaf(sqrtf(v[j]), step.inverse_root_correction2, step.epsilon);
      w[j] = w[j] * step.decay - step.step_size * m[j] / root;
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
  SgdStep step;

  template <int N>
  __device__ void run(std::int64_t i) const {
    float w[N], g[N];
    load(weight + i, w);
    load(gradient + i, g);
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] *= step.gradient_scale;
    if (buffer) {
      if (!step.first) {
        float b[N];
        load(buffer + i, b);
#pragma unroll
        for (int j = 0; j < N; ++j) g[j] = fmaf(b[j], step.momentum, g[j]);
      }
      store(buffer + i, g);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] = w[j] * step.decay - step.learning_rate * g[j];
    store(weight + i, w);
    model.put(i, w);
  }
};

}  // namespace

void adam(const Access& access, Context&, const AdamArgs& args) {
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    by_model_weight(access, args.model_weight, [&]<class M>(M model) {
      const Adam<T, M> f{.weight = data<float>(access, args.weight),
                         .gradient = data<T>(access, args.gradient),
                         .moment1 = data<float>(access, args.moment1),
                         .moment2 = data<float>(access, args.moment2),
                         .model = model,
                         .step = adam_step(args)};
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
                        .step = sgd_step(args)};
      elementwise<pack_size_of<T, typename M::Element>>(
          queue_of(access), args.weight.numel(), aligned(f.weight, f.gradient, f.buffer, model.to),
          f);
    });
  });
}

}  // namespace trident::cuda
