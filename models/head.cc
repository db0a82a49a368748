#include "models/head.h"

namespace trident {
namespace {
struct HeadRecord final : Record {
  NormRecord norm;
  LinearRecord projection;
  VocabParallelCrossEntropy::Record loss;
};
}  // namespace

std::shared_ptr<Parameter> output_table(const TensorParallel& parallel,
                                        const TransformerShape& shape) {
  return std::make_shared<Parameter>(
      ParameterSpec{.name = "output.weight",
                    .shard = ShardSpec::part({shape.vocabulary, shape.hidden}, 0, parallel.rank,
                                             parallel.size, shape.padded_vocabulary),
                    .initial = Initial::normal(shape.init_deviation)});
}

LanguageModelHead::LanguageModelHead(const TensorParallel& parallel, const TransformerShape& shape,
                                     Weight table)
    : norm_(parallel, "final_norm", shape.hidden, shape.norm_epsilon, shape.biases),
      table_(table),
      projection_(parallel, table, Weight()),
      loss_(parallel, shape.vocabulary, shape.padded_vocabulary, shape.label_smoothing) {}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  norm_.collect(list);
  list.push_back(table_.parameter());
  return list;
}

Tensor LanguageModelHead::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                  RecordPtr& kept) const {
  auto record = std::make_unique<HeadRecord>();
  const Tensor y = norm_.forward(context, batch.version, x, record->norm);
  Tensor result = projection_.forward(context, batch.version, y, record->projection);
  if (batch.labels) result = loss_.forward(context, result, batch.labels, record->loss);
  kept = std::move(record);
  return result;
}

Tensor LanguageModelHead::backward_input(Context& context, const MicroBatch& batch, const Tensor&,
                                         RecordPtr& kept) const {
  auto& record = static_cast<HeadRecord&>(*kept);
  Tensor g = loss_.backward(context, batch.loss_scale, record.loss);
  g = projection_.backward_input(context, batch.version, g, record.projection);
  return norm_.backward_input(context, batch.version, g, {}, record.norm);
}

void LanguageModelHead::backward_weight(Context& context, const MicroBatch&,
                                        RecordPtr& kept) const {
  auto& record = static_cast<HeadRecord&>(*kept);
  projection_.backward_weight(context, record.projection);
  norm_.backward_weight(context, record.norm);
  kept.reset();
}

}  // namespace trident
