// Attention over samples whose positions the ranks of a group share (context parallelism). Each
// rank has the queries, keys and values of its own positions (SequencePieces) and gets the output
// of its own queries. Letters as in kernels/attention.h; S positions of a sample, S_r of them on
// rank r, c ranks.
//
// Ways to exchange (parallel.cp_comm_type, Megatron Core's names):
//   p2p         Keys and values pass around a ring while the rank computes with those that it has
//               (Liu 2023, Ring Attention). In backward the sums of their gradients travel with
//               them. A rank holds the keys and values of two ranks at a time.
//   all_gather  Each rank gathers all keys and values, and the gradients return by an all-to-all.
//   a2a         Ranks exchange positions for heads: each computes some heads of all positions
//               (Jacobs 2023, DeepSpeed-Ulysses). c must divide A and G.
//   a2a_p2p     Both: n neighbours exchange positions for heads, and with their positions together
//               pass keys and values around a ring of c/n ranks ("a2a+p2p"; Gu 2024, LoongTrain).
//               n must divide A and G.
//
// Under p2p and all_gather a rank computes with its own keys first, then with those of ring
// distance 1, 2, …, and merges the parts by their log-sum-exp in fp32; gradients of keys and values
// are added in fp32, the owner's first, then those of ring distance 1, 2, …. So both give the same
// bits. a2a gives those of one rank, a2a_p2p those of a ring of c/n ranks with the same pieces.
#pragma once

#include <string>

#include "kernels/attention.h"
#include "parallel/context/sequence_pieces.h"
#include "parallel/process_group.h"

namespace trident {

class ContextAttention {
 public:
  enum class Exchange : std::uint8_t { p2p, all_gather, a2a, a2a_p2p };
  // The ranks that share a sample; under a2a_p2p also this rank's neighbours, and the ranks with
  // the same heads. They may be undefined where only shapes are needed.
  struct Groups {
    ProcessGroup all, heads = {}, ring = {};
  };

  ContextAttention() = default;  // one rank: the kernels alone
  // Rank `rank` of `size`. `neighbours`: n, of a2a_p2p.
  ContextAttention(Groups groups, int rank, int size, Exchange exchange, int neighbours = 1);

  // The log-sum-exp that forward saves for backward, for the shape of forward's arguments and the
  // positions of a complete sample. Its layout is forward's own.
  Tensor make_log_sum_exp(Context&, const AttentionShape&, std::int64_t positions) const;
  // As attention_forward and attention_backward, with the rows of this rank's positions: S_r of
  // each sample, those of its head, then of its tail. `positions` is S. The mask has
  // document_begins (B, S), of complete samples, and no query_begin or key_begin; a dropout index
  // counts complete samples. Collective over the group.
  void forward(Context&, const AttentionArgs&, std::int64_t positions) const;
  void backward(Context&, const AttentionBackwardArgs&, std::int64_t positions) const;

 private:
  // The positions of a sample by rank, and by place of the ring.
  SequencePieces pieces(std::int64_t positions) const { return {positions, size_}; }
  SequencePieces joined(std::int64_t positions) const {
    return {positions, size_ / neighbours_, neighbours_};
  }
  int place() const { return rank_ / neighbours_; }  // in the ring

  ProcessGroup heads_, ring_;
  int rank_ = 0, size_ = 1;
  int neighbours_ = 1;  // that exchange positions for heads
  bool gathers_ = false;
};

}  // namespace trident
