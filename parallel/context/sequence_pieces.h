// The positions of a sample that each rank of context parallelism holds. With c ranks a sample of S
// positions consists of 2c consecutive pieces of about equal size; rank r holds piece r, its head,
// and piece 2c - 1 - r, its tail. Under a causal mask all ranks then have about equal work
// (Brandon et al. 2023, "Striped Attention", section 2; Llama 3's and Megatron Core's division).
//
// S need not be a multiple of 2c: the first S % 2c pieces, in the order rank 0's head, rank 0's
// tail, rank 1's head, …, then have a position more. So no rank has more positions than rank 0.
//
// Ranks that exchange heads hold the pieces of `joined` consecutive ranks together, which are two
// again.
#pragma once

#include <array>
#include <cstdint>

namespace trident {

struct SequencePiece {
  std::int64_t begin = 0, count = 0;  // positions of the sample
  std::int64_t local = 0;             // the first one's place among its rank's positions

  std::int64_t end() const { return begin + count; }
};

class SequencePieces {
 public:
  // With `joined` above 1 a rank stands for that many consecutive ones of ranks · joined.
  SequencePieces(std::int64_t positions, int ranks, int joined = 1)
      : positions_(positions), ranks_(ranks), joined_(joined) {}

  std::int64_t positions() const { return positions_; }
  int ranks() const { return ranks_; }
  // A rank's head and tail, in the order of positions. Either may be empty.
  std::array<SequencePiece, 2> of(int rank) const;
  // The positions of a rank.
  std::int64_t count(int rank) const;
  // The most positions of any rank.
  std::int64_t most() const { return count(0); }

 private:
  std::int64_t size(std::int64_t piece) const;

  std::int64_t positions_;
  int ranks_, joined_;
};

}  // namespace trident
