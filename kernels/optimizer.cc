#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/optimizer_steps.h"

namespace trident {
namespace {

void check_f32(const Check& check, const Tensor& x, const char* name, const Tensor& weight) {
  check.dtype(x, name, DType::f32);
  check.count(x, name, weight.numel());
}

void check_common(const Check& check, const Tensor& weight, const Tensor& gradient,
                  const Tensor& model_weight, std::int64_t step) {
  check.dtype(weight, "weight", DType::f32);
  check.compute_dtype(gradient, "gradient");
  check.count(gradient, "gradient", weight.numel());
  if (model_weight) {
    check.that(model_weight.dtype() == DType::bf16 || model_weight.dtype() == DType::f16,
               Check::describe(model_weight, "model_weight"), "bf16 or fp16");
    check.count(model_weight, "model_weight", weight.numel());
  }
  check.that(step >= 1, "step " + std::to_string(step), "1 or more");
}

void check_adam(const AdamArgs& args) {
  const Check check("adam");
  check_common(check, args.weight, args.gradient, args.model_weight, args.step);
  check_f32(check, args.moment1, "moment1", args.weight);
  check_f32(check, args.moment2, "moment2", args.weight);
}
void check_sgd(const SgdArgs& args) {
  const Check check("sgd");
  check_common(check, args.weight, args.gradient, args.model_weight, args.step);
  check.that(args.momentum == 0 || args.momentum_buffer.defined(),
             "momentum " + std::to_string(args.momentum) + " and no momentum_buffer",
             "a momentum_buffer");
  if (args.momentum_buffer) check_f32(check, args.momentum_buffer, "momentum_buffer", args.weight);
}

void check_sums(const Check& check, const Tensor& sums, const char* name, std::int64_t count) {
  check.dtype(sums, name, DType::f64);
  check.count(sums, name, count);
}

void check_part(const Check& check, const AdafactorPart& part) {
  check_common(check, part.weight, part.gradient, part.model_weight, 1);
  check.that(part.begin >= 0 && part.columns > 0,
             "begin " + std::to_string(part.begin) + " of rows of " + std::to_string(part.columns),
             "begin at least 0 and columns at least 1");
}

// A matrix has a factor for every row that the part touches. A vector has a variance for each
// element.
void check_variance(const Check& check, const AdafactorPart& part, const Tensor& factors,
                    const Tensor& column_state) {
  check.dtype(column_state, "column_state", DType::f32);
  check.count(column_state, "column_state", factors ? part.columns : part.weight.numel());
  if (!factors) return;
  check.dtype(factors, "factors", DType::f32);
  check.that((part.begin + part.weight.numel() - 1) / part.columns < factors.numel(),
             Check::describe(factors, "factors"), "one for each row");
}

}  // namespace

AdamStep adam_step(const AdamArgs& args) {
  const double lr = args.learning_rate, beta1 = args.beta1, beta2 = args.beta2;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(args.step));
  return {.gradient_scale = args.gradient_scale,
          .decay = args.decoupled ? static_cast<float>(1 - lr * args.weight_decay) : 1.0f,
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .step_size = static_cast<float>(lr / correction1),
          .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(args.epsilon),
          .decay_in_gradient = args.decoupled ? 0.0f : static_cast<float>(args.weight_decay)};
}

SgdStep sgd_step(const SgdArgs& args) {
  return {.gradient_scale = args.gradient_scale,
          .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay),
          .momentum = static_cast<float>(args.momentum),
          .learning_rate = static_cast<float>(args.learning_rate),
          .first = args.step == 1};
}

void adam(Context& context, const AdamArgs& args) {
  check_adam(args);
  launch(context, &Backend::adam, args);
}
void adam(Context& context, const std::vector<AdamArgs>& all) {
  if (takes_all(context, &Backend::adam_of_all)) {
    std::ranges::for_each(all, check_adam);
    launch(context, &Backend::adam_of_all, all);
  } else {
    for (const AdamArgs& args : all) adam(context, args);
  }
}

void sgd(Context& context, const SgdArgs& args) {
  check_sgd(args);
  launch(context, &Backend::sgd, args);
}
void sgd(Context& context, const std::vector<SgdArgs>& all) {
  if (takes_all(context, &Backend::sgd_of_all)) {
    std::ranges::for_each(all, check_sgd);
    launch(context, &Backend::sgd_of_all, all);
  } else {
    for (const SgdArgs& args : all) sgd(context, args);
  }
}

void adafactor_squares(Context& context, const AdafactorSquares& args) {
  const Check check("adafactor_squares");
  check_part(check, args.part);
  check_sums(check, args.weights, "weights", 1);
  if (args.rows) {
    check_sums(check, args.columns, "columns", args.part.columns);
    check.dtype(args.rows, "rows", DType::f64);
    check.that(
        (args.part.begin + args.part.weight.numel() - 1) / args.part.columns < args.rows.numel(),
        Check::describe(args.rows, "rows"), "one for each row");
  }
  launch(context, &Backend::adafactor_squares, args);
}

void adafactor_factors(Context& context, const AdafactorFactors& args) {
  const Check check("adafactor_factors");
  check.dtype(args.row_state, "row_state", DType::f32);
  check.dtype(args.column_state, "column_state", DType::f32);
  check_sums(check, args.row_sums, "row_sums", args.row_state.numel());
  check_sums(check, args.column_sums, "column_sums", args.column_state.numel());
  check_f32(check, args.factors, "factors", args.row_state);
  launch(context, &Backend::adafactor_factors, args);
}

void adafactor_size(Context& context, const AdafactorSize& args) {
  const Check check("adafactor_size");
  check_part(check, args.part);
  check_variance(check, args.part, args.factors, args.column_state);
  check_sums(check, args.size, "size", 1);
  launch(context, &Backend::adafactor_size, args);
}

void adafactor_update(Context& context, const AdafactorUpdate& args) {
  const Check check("adafactor_update");
  check_part(check, args.part);
  check_variance(check, args.part, args.factors, args.column_state);
  check_sums(check, args.sizes, "sizes", 2);
  launch(context, &Backend::adafactor_update, args);
}

}  // namespace trident
