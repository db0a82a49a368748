// Adafactor (Shazeer & Stern 2018), as torch.optim.Adafactor with its defaults. For a matrix it
// keeps only the means of the second moment over rows and over columns.
//
// These means, and the norms of weight and update, are over a complete parameter. A rank holds a
// tensor-parallel slice of it, and counts a data-parallel part of that slice. Sums are taken in
// fp64 over the same parts in every ZeRO stage, so that the stages are bitwise identical. A matrix
// here is a parameter of this program: q, k and v, and SwiGLU's two inputs, are stacked in one
// matrix. Their separate matrices in transformers' Llama are factored separately.
#include <cmath>
#include <numeric>

#include "engine/optimizer/optimizer.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"

namespace trident {
namespace {

bool is_matrix(const UpdateRange& range) {
  return range.parameter->spec().placement.global.rank() == 2;
}
bool is_sharded(const UpdateRange& range, int dim) {
  return range.parameter->spec().placement.is_sharded_along(dim);
}

// The elements [begin, begin + count) of a parameter, all of which are in `part`.
AdafactorPart elements_of(const UpdatePart& part, std::int64_t begin, std::int64_t count,
                          float scale) {
  const std::int64_t at = begin - part.range.begin;
  const Shape local = part.range.parameter->spec().placement.local();
  const bool matrix = is_matrix(part.range);
  return {.weight = part.weight.flat(at, count),
          .gradient = part.gradient.flat(at, count),
          .model_weight = part.model_weight ? part.model_weight.flat(at, count) : Tensor(),
          .begin = matrix ? begin : 0,
          .columns = matrix ? local.dim(1) : count,
          .gradient_scale = scale};
}

class Adafactor final : public UpdateRule {
 public:
  explicit Adafactor(const OptimizerParams& params) : params_(params) {}

  std::vector<StateSpec> states(const ParameterSpec& spec) const override {
    if (spec.placement.global.rank() != 2) return {{.name = "variance"}};
    return {{.name = "row_var", .extent = StateSpec::Extent::rows},
            {.name = "col_var", .extent = StateSpec::Extent::columns}};
  }

  void update(Context& context, const std::vector<UpdatePart>& parts,
              const UpdateStep& step) const override {
    // Sharded parameters come first, as their sums are also reduced over the sharding group.
    const auto count = static_cast<std::int64_t>(parts.size());
    std::vector<std::int64_t> place(parts.size());
    std::int64_t sharded_parts = 0, next = 0;
    for (const bool sharded : {true, false}) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].range.parameter->spec().placement.is_sharded() == sharded) place[i] = next++;
      }
      if (sharded) sharded_parts = next;
    }
    // For each parameter, the sum of squares of the update and of the weights.
    const Tensor sizes = zeros(context, 2 * count), others = zeros(context, 1);
    std::vector<Tensor> weights;
    for (const std::int64_t at : place) weights.push_back(sizes.flat(2 * at + 1, 1));
    const std::vector<Sums> sums = gradient_sums(context, parts, step, weights);
    std::vector<Tensor> factors(parts.size());
    const auto rate = static_cast<float>(std::pow(static_cast<double>(step.step), -0.8));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const UpdatePart& part = parts[i];
      const UpdateRange& range = part.range;
      const Tensor size = sizes.flat(2 * place[i], 1);
      if (is_matrix(range)) {
        factors[i] = moved_factors(context, part, sums[i], rate);
      } else if (range.own_count > 0) {
        adafactor_squares(context, {.part = elements_of(part, range.own_begin, range.own_count, 1),
                                    .weights = weights[i]});
      }
      const std::int64_t own_end = range.own_begin + range.own_count;
      measure(context, part, factors[i], rate, step, range.own_begin, own_end, size);
      if (is_matrix(range)) continue;
      // The parts that other ranks count are also updated here.
      measure(context, part, {}, rate, step, range.begin, range.own_begin, others);
      measure(context, part, {}, rate, step, own_end, range.begin + range.count, others);
    }
    reduce(context, step.sharing, sizes);
    if (sharded_parts > 0) reduce(context, step.sharding_group(), sizes.flat(0, 2 * sharded_parts));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const UpdatePart& part = parts[i];
      if (part.range.count == 0) continue;
      const ParameterSpec& spec = part.range.parameter->spec();
      adafactor_update(context, {.part = elements_of(part, part.range.begin, part.range.count,
                                                     step.gradient_scale),
                                 .factors = factors[i],
                                 .column_state = part.state.back(),
                                 .sizes = sizes.flat(2 * place[i], 2),
                                 .count = spec.placement.global.numel(),
                                 .learning_rate = step.learning_rate * part.lr_mult,
                                 .weight_decay = part.decay(params_.weight_decay),
                                 .step = step.step});
    }
  }

 private:
  struct Sums {
    Tensor rows, columns;  // f64, sums of the squares of the gradients
  };

  static Tensor zeros(Context& context, std::int64_t count) {
    Tensor tensor = context.empty({count}, DType::f64, Category::workspace);
    fill(context, tensor, 0);
    return tensor;
  }
  static void reduce(Context& context, const ProcessGroup& group, const Tensor& tensor) {
    if (group.defined() && group.size() > 1) group.all_reduce(context, tensor);
  }

  // The row and column sums of complete matrices; rows (columns) that are sharded are this rank's
  // only. Adds the squares of the weights to `weights`.
  static std::vector<Sums> gradient_sums(Context& context, const std::vector<UpdatePart>& parts,
                                         const UpdateStep& step,
                                         const std::vector<Tensor>& weights) {
    // One buffer; the sums that are also reduced over the sharding group come first.
    std::int64_t shared = 0, own = 0;
    for (const UpdatePart& part : parts) {
      if (!is_matrix(part.range)) continue;
      const Shape local = part.range.parameter->spec().placement.local();
      (is_sharded(part.range, 1) ? shared : own) += local.dim(0);
      (is_sharded(part.range, 0) ? shared : own) += local.dim(1);
    }
    const Tensor all = zeros(context, shared + own);
    std::int64_t next_shared = 0, next_own = shared;
    const auto take = [&](bool is_shared, std::int64_t count) {
      std::int64_t& next = is_shared ? next_shared : next_own;
      next += count;
      return all.flat(next - count, count);
    };
    std::vector<Sums> sums(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const UpdateRange& range = parts[i].range;
      if (!is_matrix(range)) continue;
      const Shape local = range.parameter->spec().placement.local();
      sums[i].rows = take(is_sharded(range, 1), local.dim(0));
      sums[i].columns = take(is_sharded(range, 0), local.dim(1));
      if (range.own_count == 0) continue;
      adafactor_squares(context, {.part = elements_of(parts[i], range.own_begin, range.own_count,
                                                      step.gradient_scale),
                                  .rows = sums[i].rows,
                                  .columns = sums[i].columns,
                                  .weights = weights[i]});
    }
    if (shared + own > 0) reduce(context, step.sharing, all);
    if (shared > 0) reduce(context, step.sharding_group(), all.flat(0, shared));
    return sums;
  }

  static Tensor moved_factors(Context& context, const UpdatePart& part, const Sums& sums,
                              float rate) {
    const Shape& global = part.range.parameter->spec().placement.global;
    Tensor factors = context.empty(part.state[0].shape(), DType::f32, Category::workspace);
    adafactor_factors(context, {.row_sums = sums.rows,
                                .column_sums = sums.columns,
                                .row_state = part.state[0],
                                .column_state = part.state[1],
                                .factors = factors,
                                .row_count = global.dim(0),
                                .column_count = global.dim(1),
                                .mean_of_rows = !is_sharded(part.range, 0),
                                .rate = rate});
    return factors;
  }

  static void measure(Context& context, const UpdatePart& part, const Tensor& factors, float rate,
                      const UpdateStep& step, std::int64_t begin, std::int64_t end,
                      const Tensor& size) {
    if (begin >= end) return;
    const Tensor& state = part.state.back();
    adafactor_size(
        context,
        {.part = elements_of(part, begin, end - begin, step.gradient_scale),
         .factors = factors,
         .column_state = factors ? state : state.flat(begin - part.range.begin, end - begin),
         .size = size,
         .rate = rate});
  }

  OptimizerParams params_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const OptimizerParams& params) {
  return std::make_unique<Adafactor>(params);
}

}  // namespace trident
