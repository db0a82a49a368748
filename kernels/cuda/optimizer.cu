#include "kernels/optimizer.h"

#include <type_traits>
#include <vector>

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
      // An explicit fma: nvcc would fuse some of the elements of a pack and not others.
      w[j] = fmaf(w[j], step.decay, -(step.step_size * m[j] / root));
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
    for (int j = 0; j < N; ++j) w[j] = fmaf(w[j], step.decay, -(step.learning_rate * g[j]));
    store(weight + i, w);
    model.put(i, w);
  }
};

template <class T, class M>
Adam<T, M> functor_of(const Access& access, const AdamArgs& args, M model) {
  return {.weight = data<float>(access, args.weight),
          .gradient = data<T>(access, args.gradient),
          .moment1 = data<float>(access, args.moment1),
          .moment2 = data<float>(access, args.moment2),
          .model = model,
          .step = adam_step(args)};
}
template <class T, class M>
Sgd<T, M> functor_of(const Access& access, const SgdArgs& args, M model) {
  return {.weight = data<float>(access, args.weight),
          .gradient = data<T>(access, args.gradient),
          .buffer = data<float>(access, args.momentum_buffer),
          .model = model,
          .step = sgd_step(args)};
}
template <class T, class M>
bool is_aligned(const Adam<T, M>& f) {
  return aligned(f.weight, f.gradient, f.moment1, f.moment2, f.model.to);
}
template <class T, class M>
bool is_aligned(const Sgd<T, M>& f) {
  return aligned(f.weight, f.gradient, f.buffer, f.model.to);
}

template <class Args>
void update(const Access& access, const Args& args) {
  by_dtype(args.gradient.dtype(), [&]<class T>(T*) {
    by_model_weight(access, args.model_weight, [&]<class M>(M model) {
      const auto f = functor_of<T>(access, args, model);
      elementwise<pack_size_of<T, typename M::Element>>(queue_of(access), args.weight.numel(),
                                                        is_aligned(f), f);
    });
  });
}

// Updates those of `all` that have the first one's types in few launches, the others one by one.
template <class Args>
void update_all(const Access& access, const std::vector<Args>& all) {
  if (all.empty()) return;
  const auto type_of = [](const Tensor& x) { return x ? x.dtype() : DType::f32; };
  const DType gradient = all.front().gradient.dtype(), model = type_of(all.front().model_weight);
  by_dtype(gradient, [&]<class T>(T*) {
    by_model_weight(access, all.front().model_weight, [&]<class M>(M) {
      using F = decltype(functor_of<T>(access, all.front(), M{}));
      ElementwiseParts<pack_size_of<T, typename M::Element>, F> parts(queue_of(access));
      for (const Args& args : all) {
        if (args.gradient.dtype() != gradient || type_of(args.model_weight) != model) {
          update(access, args);
          continue;
        }
        M to{};
        if constexpr (!std::is_same_v<M, NoModelWeight>) {
          to.to = data<typename M::Element>(access, args.model_weight);
        }
        const F f = functor_of<T>(access, args, to);
        parts.add(args.weight.numel(), is_aligned(f), f);
      }
      parts.run();
    });
  });
}

}  // namespace

void adam(const Access& access, Context&, const AdamArgs& args) {
  update(access, args);
}
void adam_of_all(const Access& access, Context&, const std::vector<AdamArgs>& all) {
  update_all(access, all);
}

void sgd(const Access& access, Context&, const SgdArgs& args) {
  update(access, args);
}
void sgd_of_all(const Access& access, Context&, const std::vector<SgdArgs>& all) {
  update_all(access, all);
}

}  // namespace trident::cuda
