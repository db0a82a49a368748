#include "parallel/parallel_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"

namespace trident {

ParallelContext::Range ParallelContext::own(std::int64_t extent) const {
  if (extent % options_.size != 0) {
    throw Error(
        fmt::format("ParallelContext: {} ranks can't share {} equally", options_.size, extent));
  }
  const std::int64_t count = extent / options_.size;
  return {options_.rank * count, count};
}

Placement ParallelContext::activations(const Shape& global) const {
  return options_.sequence_parallel ? sharded(global, 0) : Placement::replicated(global);
}

ParallelContext::Range ParallelContext::own_rows(std::int64_t rows) const {
  return options_.sequence_parallel ? own(rows) : Range{0, rows};
}

std::int64_t ParallelContext::first_row(const Tensor& x) const {
  return options_.sequence_parallel ? options_.rank * x.dim(0) : 0;
}

Placement ParallelContext::replicated(const Shape& global) const {
  Placement placement = Placement::replicated(global);
  if (options_.sequence_parallel) placement.partial = {Group::tensor};
  return placement;
}

Placement ParallelContext::replicated_for_shards(const Shape& global) const {
  Placement placement = Placement::replicated(global);
  if (options_.size > 1) placement.partial = {Group::tensor};
  return placement;
}

Placement ParallelContext::sharded(const Shape& global, int dim, std::int64_t padded) const {
  const std::int64_t extent = padded == 0 ? global.dim(dim) : padded;
  return Placement::replicated(global).shard(dim, Group::tensor, {extent}, options_.rank,
                                             options_.size);
}

Placement ParallelContext::stacked(const Shape& global,
                                   const std::vector<std::int64_t>& blocks) const {
  return Placement::replicated(global).shard(0, Group::tensor, blocks, options_.rank,
                                             options_.size);
}

Placement ParallelContext::experts(const Shape& global) const {
  Placement placement = Placement::replicated(global);
  placement.data = DataGroups::of_expert();
  placement.shard(0, Group::expert, {global.dim(0)},
                  options_.exchange_rank / options_.expert_tensor, options_.expert);
  return placement;
}

Placement ParallelContext::experts(const Shape& global, int dim,
                                   const std::vector<std::int64_t>& blocks) const {
  return experts(global).shard(dim, Group::expert_tensor, blocks,
                               options_.exchange_rank % options_.expert_tensor,
                               options_.expert_tensor);
}

ParallelContext::Range ParallelContext::rows_to_send(const Tensor& x) const {
  const std::int64_t rows = x.dim(0);
  if (options_.sequence_parallel) return {0, rows};
  const std::int64_t most = (rows + options_.size - 1) / options_.size;
  const std::int64_t begin = std::min(rows, options_.rank * most);
  return {begin, std::min(most, rows - begin)};
}

std::int64_t ParallelContext::first_row_to_send(const Tensor& x) const {
  return first_row(x) + rows_to_send(x).begin;
}

void ParallelContext::sum_of_shares(Context& context, const Tensor& x) const {
  if (options_.size > 1) options_.tensor.all_reduce(context, x);
}

void ParallelContext::sum_of_samples(Context& context, const Tensor& x) const {
  sum_of_shares(context, x);
  if (options_.context_size > 1) options_.context.all_reduce(context, x);
}

Tensor ParallelContext::sum_of_ranks_before(Context& context, const Tensor& x) const {
  const Tensor all = context.empty({options_.size * x.numel()}, x.dtype(), Category::activation);
  options_.tensor.all_gather(context, x, all);
  Tensor sum = context.empty(x.shape(), x.dtype(), Category::activation);
  fill(context, sum, 0);
  for (int r = 0; r < options_.rank; ++r) {
    add(context, all.flat(r * x.numel(), x.numel()), sum.flat(0, x.numel()));
  }
  return sum;
}

Tensor ParallelContext::sum_before_pieces(Context& context, const Tensor& x) const {
  const auto gather = [&](const ProcessGroup& group, int size, const Tensor& own) {
    if (size == 1) return own;
    const Tensor all = context.empty({size * own.numel()}, own.dtype(), Category::activation);
    group.all_gather(context, own, all);
    return all;
  };
  const int ranks = options_.context_size;
  const Tensor all = gather(options_.context, ranks, gather(options_.tensor, options_.size, x));
  const std::int64_t n = x.numel() / 2;
  Tensor sum = context.empty(x.shape(), x.dtype(), Category::activation);
  fill(context, sum, 0);
  const auto number = [&](int rank, int half) { return half == 0 ? rank : 2 * ranks - 1 - rank; };
  for (int half = 0; half < 2; ++half) {
    const int own = number(options_.context_rank, half);
    for (int i = 0; i < 2 * ranks * options_.size; ++i) {
      const int rank = i / (2 * options_.size), layer_rank = i / 2 % options_.size;
      const int piece = number(rank, i % 2);
      if (piece > own || (piece == own && layer_rank >= options_.rank)) continue;
      add(context, all.flat(i * n, n), sum.flat(half * n, n));
    }
  }
  return sum;
}

Tensor ParallelContext::all_rows(Context& context, const Tensor& x,
                                 const std::function<void(const Tensor& share)>& make) const {
  const auto empty = [&](std::int64_t rows) {
    return context.empty({rows, x.dim(1)}, x.dtype(), Category::activation);
  };
  if (options_.size == 1 || options_.sequence_parallel) {
    Tensor all = empty(x.dim(0));
    make(all);
    return all;
  }
  // Shares follow each other; the last ones may be shorter.
  const std::int64_t most = (x.dim(0) + options_.size - 1) / options_.size;
  const Tensor all = empty(most * options_.size), own = all.rows(options_.rank * most, most);
  const std::int64_t count = rows_to_send(x).count;
  if (count < most) fill(context, own.rows(count, most - count), 0);
  make(own.rows(0, count));
  options_.tensor.all_gather(context, own, all);
  return all.rows(0, x.dim(0));
}

Tensor ParallelContext::gather_rows(Context& context, const Tensor& x) const {
  if (options_.size == 1 || !options_.sequence_parallel) return x;
  Tensor all = context.empty({x.dim(0) * options_.size, x.dim(1)}, x.dtype(), Category::activation);
  options_.tensor.all_gather(context, x, all);
  return all;
}

Tensor ParallelContext::reduce_partial_sums(Context& context, const Tensor& x) const {
  if (options_.size == 1) return x;
  if (!options_.sequence_parallel) {
    options_.tensor.all_reduce(context, x);
    return x;
  }
  Tensor part =
      context.empty({x.dim(0) / options_.size, x.dim(1)}, x.dtype(), Category::activation);
  options_.tensor.reduce_scatter(context, x, part);
  return part;
}

Tensor ParallelContext::gather_rows(
    Context& context, const Tensor& x,
    const std::function<Product(const Tensor& all)>& make_product) const {
  if (!overlaps_by_rows()) {
    Tensor all = gather_rows(context, x);
    make_product(all)(0, all.dim(0));
    return all;
  }
  const std::int64_t rows = x.dim(0);
  Tensor all = context.empty({rows * options_.size, x.dim(1)}, x.dtype(), Category::activation);
  copy(context, x, all.rows(options_.rank * rows, rows));
  std::vector<Work> coming;
  for (int r = 0; r < options_.size; ++r) {
    coming.push_back(options_.tensor.broadcast(context, all.rows(r * rows, rows), r, Async::yes));
  }
  const Product product = make_product(all);
  product(options_.rank * rows, rows);
  for (int r = 0; r < options_.size; ++r) {
    coming[static_cast<std::size_t>(r)].wait(context);
    if (r != options_.rank) product(r * rows, rows);
  }
  return all;
}

Tensor ParallelContext::reduce_partial_sums(Context& context, const Tensor& x,
                                            const Product& product) const {
  if (!overlaps_by_rows()) {
    product(0, x.dim(0));
    return reduce_partial_sums(context, x);
  }
  // Each step multiplies a part of every rank's rows and then reduces it while the next
  // part is multiplied. Parts are large enough to keep a GPU busy.
  const std::int64_t rows = x.dim(0) / options_.size;
  const std::int64_t parts = rows >= 4096 ? 4 : 2, step = (rows + parts - 1) / parts;
  Tensor own = context.empty({rows, x.dim(1)}, x.dtype(), Category::activation);
  std::vector<Work> going;
  std::vector<Tensor> kept;  // until they are reduced
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t count = std::min(step, rows - begin);
    const Tensor& part = kept.emplace_back(
        context.empty({count * options_.size, x.dim(1)}, x.dtype(), Category::communication));
    for (int r = 0; r < options_.size; ++r) {
      product(r * rows + begin, count);
      copy(context, x.rows(r * rows + begin, count), part.rows(r * count, count));
    }
    going.push_back(options_.tensor.reduce_scatter(context, part, own.rows(begin, count),
                                                   ReduceOp::sum, Async::yes));
  }
  for (const Work& work : going) work.wait(context);
  return own;
}

}  // namespace trident
