// The exchange of a layer's tokens between the ranks that hold its experts (expert parallelism,
// Lepikhin 2020): rows go to the ranks of their experts, and results come back.
//
// Letters: R rows that this rank sends, Q rows that it gets, E experts in all, e of them on this
// rank, S ranks that exchange, H columns. Where several ranks share each expert, each of them gets
// every row and returns a partial result. All ranks of the exchange group make an exchange and call
// it in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/parallel_context.h"
#include "parallel/process_group.h"

namespace trident {

// The pairs of a token and an expert, sorted by expert (kernels/experts.h).
struct ExpertRows {
  Tensor ends;   // (E) i64
  Tensor rows;   // (T, K) i32: the row of each pair
  Tensor pairs;  // (T·K) i32: the pair of each row
};

class TokenExchange {
 public:
  // Tells the other ranks the numbers of rows, for which the host waits (and, where several ranks
  // share each expert, for the pairs). Without other ranks it does nothing: rows stay, R = Q. A
  // planning device takes the rows to be shared equally.
  TokenExchange(Context&, const ParallelContext&, const ExpertRows&);

  // Groups of rows by source, then by expert: (S·e) i64, as kernels/grouped_gemm.h has them.
  const Tensor& ends() const { return ends_; }
  // Rows on their way. With Async::yes other work may run until they are needed.
  struct Moving {
    Tensor rows;
    Work work;
    Tensor sent;
    bool moves = false;  // asynchronously
    // The stream waits, after the rank's other work has had its turn (Context::give_way). Frees
    // what was sent.
    const Tensor& arrived(Context& context);
  };
  // x (T, H) → (Q, H): the tokens of the rows. `divisor`: K where x has a row for each token, 1
  // where it has one for each pair.
  Moving dispatch(Context&, const Tensor& x, std::int64_t divisor, Async = Async::no) const;
  // The way back of y (Q, H), for the sums below.
  Moving give_back(Context&, const Tensor& y, Async = Async::no) const;
  // into (T, H) := the sums over each token's experts, in ascending order, and over the ranks that
  // share one, in group-rank order.
  void combine(Context&, Moving& back, const Tensor& into) const;
  // into (T·K, 1) := for each (token, expert) pair, its returned value of y (Q, 1), summed over the
  // ranks that share the expert.
  void combine_pairs(Context&, Moving& back, const Tensor& into) const;

 private:
  // Where ranks share experts: makes the order and the places of `partial` copies of each row.
  void repeat(Context&, const ExpertRows&, std::int64_t partial);
  // The numbers of elements that each rank sends to each.
  CountsTable counts(Purpose, std::int64_t columns) const;
  Moving move(Context&, const Tensor& x, std::int64_t rows, Async, Purpose) const;

  ParallelContext parallel_;
  // Rows by sender, then by the ranks that hold an expert together (S·E/e). Empty where S = 1. In a
  // plan the senders are alike, and one stands for all.
  std::vector<std::int64_t> sent_;
  bool senders_alike_ = false;
  std::int64_t own_rows_ = 0;  // Q
  Tensor ends_;
  Tensor pairs_;  // the pairs in the order in which their rows are sent
  Tensor rows_;   // (T, K·p): the returned rows of each pair, one from each of p ranks
};

}  // namespace trident
