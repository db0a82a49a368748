#include "parallel/parameter.h"

#include <algorithm>

#include "base/error.h"
#include "core/rng.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/grouped_gemm.h"

namespace trident {

std::string_view name_of(ParameterRole role) {
  switch (role) {
    case ParameterRole::embedding:
      return "embedding";
    case ParameterRole::head:
      return "head";
    case ParameterRole::matrix:
      return "matrix";
    case ParameterRole::vector:
      return "vector";
    case ParameterRole::router:
      return "router";
    case ParameterRole::expert_bias:
      return "expert_bias";
  }
  throw Error("no such role of a parameter");
}

WeightView Parameter::acquire(WeightVersion version) const {
  if (version == live_) {
    if (!weight_) throw Error("parameter " + name() + ": its weights are not gathered");
    return WeightView(weight_);
  }
  const auto found = stashed_.find(version);
  if (found == stashed_.end()) {
    throw Error("parameter " + name() + ": version " + std::to_string(version) +
                " is not kept, the live one is " + std::to_string(live_));
  }
  return WeightView(found->second);
}

const Tensor& Weight::gradient(Context& context) const {
  const Tensor& tensor = parameter_->open_gradient(context, use_);
  if (parameter_->take_stale(use_)) fill(context, tensor, 0);
  return tensor;
}

void Weight::add_product(Context& context, const Tensor& left, const Tensor& right,
                         const Tensor& bias_gradient) const {
  const Tensor& gradient = parameter_->open_gradient(context, use_);
  gemm(context, {.a = left,
                 .b = right,
                 .c = gradient,
                 .transpose_a = true,
                 .accumulate = !parameter_->take_stale(use_),
                 .bias_gradient = bias_gradient});
}

void Weight::add_grouped_product(Context& context, const Tensor& left, const Tensor& right,
                                 const Tensor& ends) const {
  const Tensor& gradient = parameter_->open_gradient(context, use_);
  grouped_weight_gemm(context, {.a = left,
                                .b = right,
                                .c = gradient,
                                .ends = ends,
                                .accumulate = !parameter_->take_stale(use_)});
}

void initialise(Context& context, const ParameterSpec& spec, std::uint64_t seed,
                const Tensor& weight, std::int64_t first_row) {
  const Placement& placement = spec.placement;
  const Shape& global = placement.global;
  const std::int64_t columns = global.matrix_columns();
  const std::int64_t begin =
      first_row * (weight.numel() / std::max<std::int64_t>(1, weight.dim(0)));
  NormalArgs args{.key = random_key(seed, spec.name),
                  .deviation = spec.initial.deviation,
                  .mean = spec.initial.mean,
                  .global_rows = global.matrix_rows(),
                  .global_columns = columns};
  const auto slices = placement.slices(begin, weight.numel());
  std::int64_t filled = 0;
  for (const LocalSlice& held : slices) filled += held.slice.rows * held.slice.columns;
  if (filled < weight.numel()) fill(context, weight, 0);  // padding
  for (const auto& [slice, local, stride] : slices) {
    const std::int64_t rows = stride == slice.columns ? slice.rows : 1;  // all rows in one call
    for (std::int64_t row = 0; row < slice.rows; row += rows) {
      args.x = weight.flat(local + row * stride - begin, rows * slice.columns)
                   .view({rows, slice.columns});
      args.row_begin = slice.row + row;
      args.column_begin = slice.column;
      fill_normal(context, args);
      const std::int64_t zero = spec.initial.zero_row - args.row_begin;
      if (spec.initial.zero_row >= 0 && zero >= 0 && zero < rows) {
        fill(context, args.x.flat(zero * slice.columns, slice.columns), 0);
      }
    }
  }
}

}  // namespace trident
