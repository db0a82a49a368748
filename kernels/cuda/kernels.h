// The CUDA implementation of kernels/*.h. Entries as in kernels/backend.h; they put kernels into
// the queue that the Access names and return. All results are the same from run to run.
#pragma once

#include "kernels/backend.h"

namespace trident::cuda {

std::string instructions();
void gemm(const Access&, Context&, const GemmArgs&);
void fill(const Access&, Context&, const Tensor& x, double value);
void copy(const Access&, Context&, const Tensor& from, const Tensor& to);
void add(const Access&, Context&, const Tensor& x, const Tensor& y);
void scale(const Access&, Context&, const Tensor& x, float factor);
void lerp(const Access&, Context&, const Tensor& x, const Tensor& target, float part);
// The bias may be of another type than x and y.
void add_bias(const Access&, Context&, const Tensor& x, const Tensor& bias, const Tensor& y);
void bias_backward(const Access&, Context&, const Tensor& grad_y, const Tensor& grad_bias);
void sum(const Access&, Context&, const Tensor& x, const Tensor& total);
void square_sums(const Access&, Context&, const Tensor& x, std::int64_t block, const Tensor& out);
void exact_sum(const Access&, Context&, const Tensor& x, const Tensor& state);
void fill_normal(const Access&, Context&, const NormalArgs&);
void norm_forward(const Access&, Context&, const NormArgs&);
void norm_backward_input(const Access&, Context&, const NormBackwardArgs&);
void norm_backward_weight(const Access&, Context&, const NormWeightArgs&);
void gelu_forward(const Access&, Context&, const Tensor& x, const Tensor& y);
void gelu_backward(const Access&, Context&, const Tensor& x, const Tensor& grad_y,
                   const Tensor& grad_x);
void swiglu_forward(const Access&, Context&, const Tensor& x, const Tensor& y);
void swiglu_backward(const Access&, Context&, const Tensor& x, const Tensor& grad_y,
                     const Tensor& grad_x);
void embedding_forward(const Access&, Context&, const EmbeddingArgs&);
void embedding_backward(const Access&, Context&, const EmbeddingBackwardArgs&);
void position_forward(const Access&, Context&, const PositionArgs&);
void position_backward(const Access&, Context&, const PositionBackwardArgs&);
void cross_entropy_maximum(const Access&, Context&, const CrossEntropyShape&, const Tensor& logits,
                           const Tensor& maximum);
void cross_entropy_statistics(const Access&, Context&, const CrossEntropyShape&,
                              const Tensor& logits, const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics);
void cross_entropy_losses(const Access&, Context&, const CrossEntropyShape&,
                          const Tensor& statistics, const Tensor& losses);
void cross_entropy_gradient(const Access&, Context&, const CrossEntropyShape&, const Tensor& logits,
                            const Tensor& labels, const Tensor& maximum, const Tensor& statistics,
                            float scale);
void cross_entropy(const Access&, Context&, const CrossEntropyShape&, const Tensor& logits,
                   const Tensor& labels, const Tensor& losses, std::optional<float> gradient_scale);
void attention_forward(const Access&, Context&, const AttentionArgs&);
void attention_backward(const Access&, Context&, const AttentionBackwardArgs&);
void append_to_cache(const Access&, Context&, const CacheArgs&);
void attention_cached(const Access&, Context&, const CacheArgs&, const Tensor& out);
void rotary(const Access&, Context&, const RotaryArgs&);
void dropout_add(const Access&, Context&, const DropoutAddArgs&);
void adam(const Access&, Context&, const AdamArgs&);
void sgd(const Access&, Context&, const SgdArgs&);
void adafactor_squares(const Access&, Context&, const AdafactorSquares&);
void adafactor_factors(const Access&, Context&, const AdafactorFactors&);
void adafactor_size(const Access&, Context&, const AdafactorSize&);
void adafactor_update(const Access&, Context&, const AdafactorUpdate&);
void copy_peer(const Access&, void* to, const void* from, std::size_t bytes);
void reduce_peers(const Access&, const ReducePeers&);

}  // namespace trident::cuda
