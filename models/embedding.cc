#include "models/embedding.h"

#include "core/rng.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace trident {
namespace {
struct EmbeddingActivations final : SavedActivations {
  Tensor gradient;
};
}  // namespace

std::shared_ptr<Parameter> embedding_table(const ParallelContext& parallel,
                                           const TransformerShape& shape, bool copy) {
  Placement placement =
      parallel.sharded({shape.vocabulary, shape.hidden}, 0, shape.padded_vocabulary);
  placement.tied = shape.embeds_on_last_stage();
  placement.copy = copy;
  return std::make_shared<Parameter>(
      ParameterSpec{.name = "embedding.weight",
                    .placement = std::move(placement),
                    .initial = {.deviation = shape.init_deviation, .zero_row = shape.padding_token},
                    .role = ParameterRole::embedding});
}

Embedding::Embedding(const ParallelContext& parallel, const TransformerShape& shape, Weight table)
    : parallel_(parallel),
      dtype_(shape.dtype),
      dropout_(shape.hidden_dropout),
      dropout_key_(random_key(shape.seed, "embedding.dropout")),
      table_(table),
      lookup_(parallel, table, shape.padding_token) {
  if (shape.positions > 0) {
    positions_ = Weight(std::make_shared<Parameter>(
        ParameterSpec{.name = "positions.weight",
                      .placement = parallel.replicated({shape.positions, shape.hidden}),
                      .initial = Initial::normal(shape.init_deviation),
                      .role = ParameterRole::embedding}));
  }
}

std::vector<std::shared_ptr<Parameter>> Embedding::parameters() const {
  std::vector list{table_.parameter()};
  if (positions_) list.push_back(positions_.parameter());
  return list;
}

Tensor Embedding::forward(Context& context, const MicroBatch& batch, const Tensor&,
                          SavedActivationsPtr& saved) const {
  Tensor x = lookup_.forward(context, batch.version, batch.tokens, dtype_);
  if (positions_ && batch.positions) {
    const Tensor rows = context.empty(x.shape(), x.dtype(), Category::activation);
    embedding_forward(context, {.ids = batch.positions.rows(parallel_.first_row(x), x.dim(0)),
                                .table = positions_.acquire(batch.version).tensor(),
                                .out = rows});
    add(context, rows, x);
  } else if (positions_) {
    position_forward(context, {.x = x,
                               .table = positions_.acquire(batch.version).tensor(),
                               .sequence = batch.sequence,
                               .first_row = parallel_.first_row(x),
                               .begin = batch.begin});
  }
  if (batch.training && dropout_ > 0) {
    dropout_add(
        context,
        {.dropout = {.probability = dropout_, .key = dropout_key_, .samples = batch.samples},
         .x = x,
         .residual = {},
         .y = x,
         .sequence = batch.sequence,
         .first_row = parallel_.first_row(x),
         .places = batch.places});
  }
  saved = std::make_unique<EmbeddingActivations>();
  return x;
}

Tensor Embedding::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                 SavedActivationsPtr& saved) const {
  Tensor gradient = grad_y;
  if (batch.training && dropout_ > 0) {
    gradient = context.empty(grad_y.shape(), grad_y.dtype(), Category::activation);
    dropout_add(
        context,
        {.dropout = {.probability = dropout_, .key = dropout_key_, .samples = batch.samples},
         .x = grad_y,
         .residual = {},
         .y = gradient,
         .sequence = batch.sequence,
         .first_row = parallel_.first_row(grad_y),
         .places = batch.places});
  }
  static_cast<EmbeddingActivations&>(*saved).gradient = gradient;
  return {};
}

void Embedding::backward_weight(Context& context, const MicroBatch& batch,
                                SavedActivationsPtr& saved) const {
  const Tensor gradient = static_cast<EmbeddingActivations&>(*saved).gradient;
  if (positions_ && batch.positions) {
    embedding_backward(context,
                       {.ids = batch.positions.rows(parallel_.first_row(gradient), gradient.dim(0)),
                        .grad_out = gradient,
                        .grad_table = positions_.gradient(context)});
  } else if (positions_) {
    position_backward(context, {.grad_x = gradient,
                                .grad_table = positions_.gradient(context),
                                .sequence = batch.sequence,
                                .first_row = parallel_.first_row(gradient)});
  }
  lookup_.backward_weight(context, batch.tokens, gradient);
  saved.reset();
}

}  // namespace trident
