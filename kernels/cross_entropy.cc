#include "kernels/cross_entropy.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_slice(const Check& check, const CrossEntropyShape& shape, const Tensor& logits) {
  check.compute_dtype(logits, "logits");
  check.rank(logits, "logits", 2);
  check.that(shape.valid >= 0 && shape.valid <= logits.dim(1),
             std::to_string(shape.valid) + " valid columns",
             "0 to " + std::to_string(logits.dim(1)));
  check.that(shape.label_smoothing >= 0 && shape.label_smoothing <= 1,
             "label_smoothing " + std::to_string(shape.label_smoothing), "0 to 1");
  check.that(shape.vocabulary > 0, "vocabulary " + std::to_string(shape.vocabulary), "at least 1");
}

void check_row_values(const Check& check, const Tensor& x, const char* name, std::int64_t rows) {
  check.dtype(x, name, DType::f32);
  check.shape(x, name, {rows});
}

void check_labels(const Check& check, const Tensor& labels, std::int64_t rows) {
  check.dtype(labels, "labels", DType::i32);
  check.shape(labels, "labels", {rows});
}

void check_statistics(const Check& check, const Tensor& statistics, std::int64_t rows) {
  check.dtype(statistics, "statistics", DType::f32);
  check.shape(statistics, "statistics", {3, rows});
}

}  // namespace

void cross_entropy_maximum(Context& context, const CrossEntropyShape& shape, const Tensor& logits,
                           const Tensor& maximum) {
  const Check check("cross_entropy_maximum");
  check_slice(check, shape, logits);
  check_row_values(check, maximum, "maximum", logits.dim(0));
  launch(context, &Backend::cross_entropy_maximum, shape, logits, maximum);
}

void cross_entropy_statistics(Context& context, const CrossEntropyShape& shape,
                              const Tensor& logits, const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics) {
  const Check check("cross_entropy_statistics");
  check_slice(check, shape, logits);
  check_labels(check, labels, logits.dim(0));
  check_row_values(check, maximum, "maximum", logits.dim(0));
  check_statistics(check, statistics, logits.dim(0));
  launch(context, &Backend::cross_entropy_statistics, shape, logits, labels, maximum, statistics);
}

void cross_entropy_losses(Context& context, const CrossEntropyShape& shape,
                          const Tensor& statistics, const Tensor& losses) {
  const Check check("cross_entropy_losses");
  check.rank(losses, "losses", 1);
  check_row_values(check, losses, "losses", losses.dim(0));
  check_statistics(check, statistics, losses.dim(0));
  check.that(shape.vocabulary > 0, "vocabulary " + std::to_string(shape.vocabulary), "at least 1");
  launch(context, &Backend::cross_entropy_losses, shape, statistics, losses);
}

void cross_entropy_gradient(Context& context, const CrossEntropyShape& shape, const Tensor& logits,
                            const Tensor& labels, const Tensor& maximum, const Tensor& statistics,
                            float scale) {
  const Check check("cross_entropy_gradient");
  check_slice(check, shape, logits);
  check_labels(check, labels, logits.dim(0));
  check_row_values(check, maximum, "maximum", logits.dim(0));
  check_statistics(check, statistics, logits.dim(0));
  launch(context, &Backend::cross_entropy_gradient, shape, logits, labels, maximum, statistics,
         scale);
}

void cross_entropy(Context& context, const CrossEntropyShape& shape, const Tensor& logits,
                   const Tensor& labels, const Tensor& losses,
                   std::optional<float> gradient_scale) {
  const Check check("cross_entropy");
  check_slice(check, shape, logits);
  check.that(
      shape.begin == 0 && shape.valid == shape.vocabulary,
      "columns " + std::to_string(shape.begin) + " to " + std::to_string(shape.begin + shape.valid),
      "all " + std::to_string(shape.vocabulary));
  const std::int64_t rows = logits.dim(0);
  check_labels(check, labels, rows);
  check_row_values(check, losses, "losses", rows);
  if (backend_of(context).cross_entropy != nullptr) {
    return launch(context, &Backend::cross_entropy, shape, logits, labels, losses, gradient_scale);
  }
  const Tensor maximum = context.empty({rows}, DType::f32, Category::activation),
               statistics = context.empty({3, rows}, DType::f32, Category::activation);
  cross_entropy_maximum(context, shape, logits, maximum);
  cross_entropy_statistics(context, shape, logits, labels, maximum, statistics);
  cross_entropy_losses(context, shape, statistics, losses);
  if (!gradient_scale) return;
  cross_entropy_gradient(context, shape, logits, labels, maximum, statistics, *gradient_scale);
}

}  // namespace trident
