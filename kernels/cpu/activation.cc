#include "kernels/activation.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

void gelu_forward(const Access& access, Context& context, const Tensor& x, const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    T* const to = data<T>(access, y);
    const auto& leaves = state_of(context).table->get<T>();
    parallel_elements(context, x.numel(), grain_elements,
                      [&](std::int64_t begin, std::int64_t end) {
                        leaves.gelu_forward(from + begin, to + begin, end - begin);
                      });
  });
}

void gelu_backward(const Access& access, Context& context, const Tensor& x, const Tensor& grad_y,
                   const Tensor& grad_x) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, x), *const grad = data<T>(access, grad_y);
    T* const to = data<T>(access, grad_x);
    const auto& leaves = state_of(context).table->get<T>();
    parallel_elements(context, x.numel(), grain_elements,
                      [&](std::int64_t begin, std::int64_t end) {
                        leaves.gelu_backward(from + begin, grad + begin, to + begin, end - begin);
                      });
  });
}

void swiglu_forward(const Access& access, Context& context, const Tensor& x, const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    T* const to = data<T>(access, y);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t f = y.dim(1);
    context.team().parallel_for(y.dim(0), grain_rows(f), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const T* const row = from + t * 2 * f;
        leaves.swiglu_forward(row, row + f, to + t * f, f);
      }
    });
  });
}

void swiglu_backward(const Access& access, Context& context, const Tensor& x, const Tensor& grad_y,
                     const Tensor& grad_x) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, x), *const grad = data<T>(access, grad_y);
    T* const to = data<T>(access, grad_x);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t f = grad_y.dim(1);
    context.team().parallel_for(
        grad_y.dim(0), grain_rows(f), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const T* const row = from + t * 2 * f;
            T* const out = to + t * 2 * f;
            leaves.swiglu_backward(row, row + f, grad + t * f, out, out + f, f);
          }
        });
  });
}

}  // namespace trident::cpu
