#include "parallel/parameter.h"

#include <algorithm>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {

Shape ShardSpec::local() const {
  if (!sharded()) return global;
  std::int64_t extent = 0;
  for (const Piece& piece : pieces) extent += piece.count;
  if (global.rank() == 1) return {extent};
  return dim == 0 ? Shape{extent, global.dim(1)} : Shape{global.dim(0), extent};
}

ShardSpec ShardSpec::part(Shape global, int dim, int rank, int size, std::int64_t padded) {
  if (padded == 0) padded = global.dim(dim);
  if (padded % size != 0) {
    throw Error("ShardSpec: " + std::to_string(size) + " does not divide dimension " +
                std::to_string(dim) + " of " + global.to_string());
  }
  if (size == 1 && padded == global.dim(dim)) return replicated(global);
  const std::int64_t count = padded / size;
  return {global, dim, {{rank * count, count}}};
}

ShardSpec ShardSpec::stacked(Shape global, const std::vector<std::int64_t>& blocks, int rank,
                             int size) {
  if (size == 1) return replicated(global);
  ShardSpec spec{global, 0, {}};
  std::int64_t begin = 0;
  for (const std::int64_t block : blocks) {
    if (block % size != 0) {
      throw Error("ShardSpec: " + std::to_string(size) + " does not divide a block of " +
                  std::to_string(block) + " rows of " + global.to_string());
    }
    spec.pieces.push_back({begin + rank * (block / size), block / size});
    begin += block;
  }
  return spec;
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

void initialise(Context& context, const ParameterSpec& spec, std::uint64_t seed,
                const Tensor& weight, std::int64_t first_row) {
  const ShardSpec& shard = spec.shard;
  const Shape& global = shard.global;
  const bool vector = global.rank() == 1;
  // A vector is a column of one element a row.
  const std::int64_t global_rows = global.dim(0), global_columns = vector ? 1 : global.dim(1);
  NormalArgs args{.x = {},
                  .key = random_key(seed, spec.name),
                  .deviation = spec.initial.deviation,
                  .mean = spec.initial.mean,
                  .row_begin = first_row,
                  .column_begin = 0,
                  .global_rows = global_rows,
                  .global_columns = global_columns};
  if (!shard.sharded()) {
    args.x = weight.view({weight.dim(0), global_columns});
    fill_normal(context, args);
  } else if (shard.dim == 1) {
    args.x = weight;
    args.column_begin = shard.pieces.front().begin;
    fill_normal(context, args);
  } else {
    std::int64_t row = 0;  // of the local slice
    for (const ShardSpec::Piece& piece : shard.pieces) {
      const std::int64_t begin = std::max(row, first_row);
      const std::int64_t count = std::min(row + piece.count, first_row + weight.dim(0)) - begin;
      if (count > 0) {
        args.x = weight.rows(begin - first_row, count).view({count, global_columns});
        args.row_begin = piece.begin + begin - row;
        fill_normal(context, args);
      }
      row += piece.count;
    }
  }
}

}  // namespace trident
