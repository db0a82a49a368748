// The parallelism of a module: its rank's share of heads, rows or vocabulary, the placement of its
// parameters, and the gathers and sums of its activations' rows. A module asks for linear layers by
// shape and role (linear(), parallel/tensor/linear.h) and never divides by a group's size.
//
// T is the number of rows (tokens) of a micro-batch, t the size of the tensor group. Under sequence
// parallelism (Korthikanti 2022) a rank holds T/t consecutive rows of the activations between the
// linear layers. The paper shards the sequence; we shard the flattened (sample, position) rows,
// which is the same work in one contiguous range.
//
// All ranks of the tensor group call gather_rows(), reduce_partial_sums(), all_rows(),
// sum_of_shares() and sum_of_ranks_before() in the same order. All that share a sample call
// sum_of_samples() and attention in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/context.h"
#include "parallel/context/context_attention.h"
#include "parallel/placement.h"
#include "parallel/process_group.h"

namespace trident {

class Linear;
struct LinearSpec;

class ParallelContext {
 public:
  struct Options {
    // The ranks that share each layer (Megatron's tensor parallelism, Shoeybi 2019), and this
    // rank's number among them. The group may be undefined where only shapes are needed (the costs
    // of a model, the parts of its files).
    ProcessGroup tensor;
    int rank = 0;
    int size = 1;
    bool sequence_parallel = false;
    // Sequence parallelism: a rank keeps only its own rows of the input that it gathered for a
    // column-parallel layer, and gathers all rows again for the weight gradient (Korthikanti 2022,
    // section 4.2.2).
    bool gathers_again = false;
    // Sequence parallelism: gathering and summing go by one rank's rows at a time, so that products
    // of some rows overlap with the transfer of others.
    bool overlap = false;
    // The ranks that share each sample (context parallelism), and how attention exchanges positions
    // among them. The group may be undefined for one rank, and where only shapes are needed.
    ProcessGroup context;
    int context_rank = 0, context_size = 1;
    ContextAttention::Exchange context_exchange = ContextAttention::Exchange::p2p;
    // Of a2a_p2p: the groups of both levels, and the size of the first.
    ProcessGroup context_heads, context_ring;
    int context_neighbours = 1;
    // The ranks that exchange the tokens of experts: `expert_tensor` consecutive ranks share each
    // expert, `expert` such groups have different ones (Group::exchange). It may be undefined for
    // one rank, and where only shapes are needed.
    ProcessGroup exchange;
    int exchange_rank = 0;
    int expert = 1, expert_tensor = 1;
  };
  ParallelContext() = default;  // one rank
  explicit ParallelContext(Options options) : options_(std::move(options)) {}

  // Whether this rank has every layer complete, so that no sum over ranks is needed.
  bool is_alone() const { return options_.size == 1; }
  // The ranks that share each layer.
  const ProcessGroup& layer_group() const { return options_.tensor; }

  // Attention over the positions of all ranks that share a sample.
  ContextAttention context_attention() const {
    return {
        {.all = options_.context, .heads = options_.context_heads, .ring = options_.context_ring},
        options_.context_rank,
        options_.context_size,
        options_.context_exchange,
        options_.context_neighbours};
  }
  // The positions of a sample of `positions` that this rank holds.
  std::int64_t own_positions(std::int64_t positions) const {
    return SequencePieces(positions, options_.context_size).count(options_.context_rank);
  }

  // Where activations (T, H) between the linear layers lie: rows sharded under sequence
  // parallelism, else the same on all ranks.
  Placement activations(const Shape& global) const;
  // This rank's part of `extent` equal things of a layer, such as heads.
  struct Range {
    std::int64_t begin = 0, count = 0;
  };
  Range own(std::int64_t extent) const;
  // The rows of activations() that this rank holds of `rows`: T/t under sequence parallelism, else
  // T.
  Range own_rows(std::int64_t rows) const;
  // The index, within the micro-batch, of the first row of an activation (T or T/t, H) between the
  // linear layers.
  std::int64_t first_row(const Tensor& x) const;
  bool shares_rows() const { return options_.sequence_parallel; }
  // True if this rank contributes to a sum over rows: it holds a distinct part (`held` of `all`
  // rows), or is rank 0 of ranks with identical rows.
  bool counts_rows(std::int64_t held, std::int64_t all) const {
    return held < all || options_.rank == 0;
  }
  bool gathers_again() const { return options_.gathers_again; }

  // The placement of a parameter: replicated on each rank (its gradient is partial under sequence
  // parallelism, where a rank sees its own rows only); sharded along `dim`, whose padded extent is
  // `padded` (0: the real one); sharded along rows that are a stack of blocks, each split into
  // equal parts.
  Placement replicated(const Shape& global) const;
  // Replicated, but this rank applies it to its own shard of the layer (its heads, its share of the
  // rows), so that its gradient is partial in any case.
  Placement replicated_for_shards(const Shape& global) const;
  Placement sharded(const Shape& global, int dim, std::int64_t padded = 0) const;
  Placement stacked(const Shape& global, const std::vector<std::int64_t>& blocks) const;

  // The placement of experts (E, ...), this rank's experts complete or, with `dim`, sharded along a
  // dimension that is a stack of blocks.
  Placement experts(const Shape& global) const;
  Placement experts(const Shape& global, int dim, const std::vector<std::int64_t>& blocks) const;
  // The ranks that exchange tokens, and how many of them share each expert.
  const ProcessGroup& exchange_group() const { return options_.exchange; }
  int exchange_rank() const { return options_.exchange_rank; }
  int exchange_ranks() const { return options_.expert * options_.expert_tensor; }
  int ranks_of_expert() const { return options_.expert_tensor; }
  // The rows of activations (T or T/t, H) that this rank sends to experts: those that it holds
  // alone, or where all ranks of the layer hold the same rows, its share of them, which may be
  // empty. all_rows() puts the ranks' shares together again; it is collective over the layer's
  // ranks.
  Range rows_to_send(const Tensor& x) const;
  // `make(rows)` fills this rank's share (count, H) of a new tensor of x's shape.
  Tensor all_rows(Context&, const Tensor& x,
                  const std::function<void(const Tensor& share)>& make) const;
  // x := the sum over the ranks of the layer, of which each has added up its share of the rows.
  void sum_of_shares(Context&, const Tensor& x) const;
  // As sum_of_shares(), over all ranks that have tokens of the same samples: those of the layer and
  // of context parallelism.
  void sum_of_samples(Context&, const Tensor& x) const;
  // Whether there are other such ranks, and whether this is the first of them.
  bool shares_samples() const { return options_.size > 1 || options_.context_size > 1; }
  bool counts_samples() const { return options_.rank == 0 && options_.context_rank == 0; }
  // Whether other ranks of the layer have shares, and the sum of x over those before this rank.
  bool shares_tokens() const { return options_.size > 1; }
  Tensor sum_of_ranks_before(Context&, const Tensor& x) const;
  // Whether other ranks hold other pieces of each sample, and the two pieces of this rank.
  bool holds_pieces() const { return options_.context_size > 1; }
  std::array<SequencePiece, 2> own_pieces(std::int64_t positions) const {
    return SequencePieces(positions, options_.context_size).of(options_.context_rank);
  }
  // x (2, N) i64 counts something in this rank's rows of its two pieces. Returns for each of them
  // the sum over all rows that come before these in samples: those of earlier pieces, and those of
  // the same piece on the layer's ranks before this one. Collective over both groups.
  Tensor sum_before_pieces(Context&, const Tensor& x) const;
  // The index, within the micro-batch, of the first row to send.
  std::int64_t first_row_to_send(const Tensor& x) const;

  // A linear layer with its parameters. Include parallel/tensor/linear.h to use it.
  Linear linear(const LinearSpec&) const;

  // gather_rows() turns (T, H), of which this rank holds T/t rows, into all T rows.
  // reduce_partial_sums() goes back by a sum. Without sequence parallelism gather_rows() is the
  // identity and reduce_partial_sums() an all-reduce in place.
  Tensor gather_rows(Context&, const Tensor& x) const;
  Tensor reduce_partial_sums(Context&, const Tensor& x) const;

  // The same around a product. product(begin, count) is called for rows of the full tensor: once
  // for all rows, or with Options::overlap for one rank's rows after another's. Every row is passed
  // once.
  using Product = std::function<void(std::int64_t begin, std::int64_t count)>;
  // gather_rows(x), passed to make_product before the first rows have arrived.
  Tensor gather_rows(Context&, const Tensor& x,
                     const std::function<Product(const Tensor& all)>& make_product) const;
  // reduce_partial_sums(x), where the products write x.
  Tensor reduce_partial_sums(Context&, const Tensor& x, const Product& product) const;

 private:
  bool overlaps_by_rows() const {
    return options_.size > 1 && options_.sequence_parallel && options_.overlap;
  }

  Options options_;
};

}  // namespace trident
