// Attention of ranks that exchange positions for heads (ContextAttention's a2a): each computes some
// of the heads for the positions of all these ranks (Jacobs 2023, DeepSpeed-Ulysses), which are
// those of a complete sample or, under a2a_p2p, of a rank of a ring.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <vector>

#include "kernels/attention.h"
#include "parallel/context/sequence_pieces.h"
#include "parallel/process_group.h"

namespace trident {

class HeadExchange {
 public:
  // Place `rank` of the `ranks` of the group, whose places in all of context parallelism begin at
  // `first`; the arguments of ContextAttention::forward; the pieces of all ranks, and those of the
  // groups that exchange, of which this one is number first / ranks.
  HeadExchange(Context&, const ProcessGroup&, int rank, int first, const AttentionArgs&,
               const SequencePieces& pieces, const SequencePieces& joined);
  // `attend` computes attention of the arguments that it gets: this rank's heads, of the group's
  // positions.
  void forward(const std::function<void(const AttentionArgs&)>& attend) const;
  // Exchanges the operands of forward again, so that no rank has to keep them.
  void backward(const AttentionBackwardArgs&,
                const std::function<void(const AttentionBackwardArgs&)>& attend) const;

 private:
  // All heads of this rank's positions, `dim` elements each.
  struct Heads {
    HeadColumns x;
    std::int64_t heads = 0, dim = 0;
  };

  Tensor make(std::int64_t rows, std::int64_t columns) const;
  // The columns of this rank's heads of all these operands, side by side.
  std::int64_t columns_of(std::initializer_list<Heads>) const;
  // (B·S', ·) of the group's S' positions of a sample: this rank's heads of the operands, in the
  // order of samples and positions.
  Tensor exchange(std::initializer_list<Heads>) const;
  // The way back: writes all heads of this rank's positions.
  void give_back(const Tensor& own, std::initializer_list<Heads> to) const;
  // Calls body(row, place, count) for each run of consecutive rows: in the order of ranks, as they
  // are exchanged, and in that of samples and positions.
  template <class Body>
  void each_run(const Body& body) const;
  std::vector<std::int64_t> counts(std::int64_t columns, bool back) const;
  AttentionArgs complete(const Tensor& qkv, const Tensor& out) const;

  Context& context_;
  const ProcessGroup& group_;
  int rank_, ranks_, first_;
  const AttentionArgs& args_;
  const SequencePieces& pieces_;
  std::array<SequencePiece, 2> held_;  // by the group
  AttentionShape shape_;               // of this rank's heads and the group's positions
};

}  // namespace trident
