#include "parallel/context/sequence_pieces.h"

namespace trident {

std::int64_t SequencePieces::size(std::int64_t piece) const {
  const std::int64_t all = std::int64_t{2} * ranks_ * joined_;
  std::int64_t sum = 0;
  for (std::int64_t i = piece * joined_; i < (piece + 1) * joined_; ++i) {
    const std::int64_t turn = 2 * i < all ? 2 * i : 2 * (all - 1 - i) + 1;
    sum += positions_ / all + (turn < positions_ % all ? 1 : 0);
  }
  return sum;
}

std::array<SequencePiece, 2> SequencePieces::of(int rank) const {
  SequencePiece head{.count = size(rank)};
  for (int piece = 0; piece < rank; ++piece) head.begin += size(piece);
  SequencePiece tail{.count = size(2 * ranks_ - 1 - rank), .local = head.count};
  tail.begin = positions_ - tail.count;
  for (int piece = 2 * ranks_ - rank; piece < 2 * ranks_; ++piece) tail.begin -= size(piece);
  return {head, tail};
}

std::int64_t SequencePieces::count(int rank) const {
  return size(rank) + size(2 * ranks_ - 1 - rank);
}

}  // namespace trident
