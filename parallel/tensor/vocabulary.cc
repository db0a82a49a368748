#include "parallel/tensor/vocabulary.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"

namespace trident {

VocabParallelEmbedding::VocabParallelEmbedding(ParallelContext parallel, Weight table,
                                               std::int64_t padding)
    : parallel_(std::move(parallel)), table_(std::move(table)), padding_(padding) {
  const Placement& placement = table_.parameter()->spec().placement;
  if (placement.is_sharded_along(0)) begin_ = placement.shardings[0].shards.front().begin;
}

Tensor VocabParallelEmbedding::forward(Context& context, WeightVersion version, const Tensor& ids,
                                       DType dtype) const {
  Tensor out = context.empty({ids.numel(), table_.dim(1)}, dtype, Category::activation);
  embedding_forward(
      context,
      {.ids = ids, .table = table_.acquire(version).tensor(), .out = out, .begin = begin_});
  return parallel_.reduce_partial_sums(context, out);
}

void VocabParallelEmbedding::backward_weight(Context& context, const Tensor& ids,
                                             const Tensor& grad_y) const {
  embedding_backward(context, {.ids = ids,
                               .grad_out = parallel_.gather_rows(context, grad_y),
                               .grad_table = table_.gradient(context),
                               .begin = begin_,
                               .padding = padding_});
}

VocabParallelCrossEntropy::VocabParallelCrossEntropy(ParallelContext parallel,
                                                     std::int64_t vocabulary, std::int64_t padded,
                                                     float label_smoothing)
    : parallel_(std::move(parallel)),
      vocabulary_(vocabulary),
      columns_(parallel_.own(padded)),
      label_smoothing_(label_smoothing) {}

namespace {
CrossEntropyShape shape_of(const ParallelContext::Range& columns, std::int64_t vocabulary,
                           float label_smoothing) {
  return {.begin = columns.begin,
          .valid = std::clamp<std::int64_t>(vocabulary - columns.begin, 0, columns.count),
          .vocabulary = vocabulary,
          .label_smoothing = label_smoothing};
}
}  // namespace

void VocabParallelCrossEntropy::forward(Context& context, const Tensor& logits,
                                        const Tensor& labels, const Tensor& losses,
                                        SavedActivations& saved) const {
  const auto shape = shape_of(columns_, vocabulary_, label_smoothing_);
  const std::int64_t rows = logits.dim(0);
  saved = {logits, labels, context.empty({rows}, DType::f32, Category::activation),
           context.empty({3, rows}, DType::f32, Category::activation)};
  cross_entropy_maximum(context, shape, logits, saved.maximum);
  if (!parallel_.is_alone())
    parallel_.layer_group().all_reduce(context, saved.maximum, ReduceOp::maximum);
  cross_entropy_statistics(context, shape, logits, labels, saved.maximum, saved.statistics);
  if (!parallel_.is_alone()) parallel_.layer_group().all_reduce(context, saved.statistics);
  cross_entropy_losses(context, shape, saved.statistics, losses);
}

Tensor VocabParallelCrossEntropy::backward(Context& context, float scale,
                                           SavedActivations& saved) const {
  const auto shape = shape_of(columns_, vocabulary_, label_smoothing_);
  cross_entropy_gradient(context, shape, saved.logits, saved.labels, saved.maximum,
                         saved.statistics, scale);
  Tensor gradient = saved.logits;
  saved = {};
  return gradient;
}

void VocabParallelCrossEntropy::run(Context& context, const Tensor& logits, const Tensor& labels,
                                    const Tensor& losses, std::optional<float> scale) const {
  if (parallel_.is_alone()) {
    const auto shape = shape_of(columns_, vocabulary_, label_smoothing_);
    return cross_entropy(context, shape, logits, labels, losses, scale);
  }
  SavedActivations saved;
  forward(context, logits, labels, losses, saved);
  if (scale) backward(context, *scale, saved);
}

}  // namespace trident
