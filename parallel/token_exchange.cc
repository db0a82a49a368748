#include "parallel/token_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/experts.h"

namespace trident {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// The rows that each source has for each expert (S·E); in a plan those of one for all (E).
std::vector<std::int64_t> counts_of(Context& context, const ParallelContext& parallel,
                                    const ExpertRows& rows) {
  const std::int64_t experts = rows.ends.dim(0), sources = parallel.exchange_ranks();
  const Tensor ends = context.empty({sources, experts}, DType::i64, Category::activation);
  const Async async = context.shares_turns() ? Async::yes : Async::no;
  const Work gathered = parallel.exchange_group().all_gather(context, rows.ends, ends, async);
  context.give_way();
  gathered.wait(context);
  if (context.is_planning()) {  // without data: equal shares
    const std::int64_t least = rows.pairs.numel() / experts, more = rows.pairs.numel() % experts;
    std::vector<std::int64_t> shares(index(experts), least);
    std::fill(shares.begin(), shares.begin() + more, least + 1);
    return shares;
  }
  std::vector<std::int64_t> counts = context.to_host<std::int64_t>(ends);
  for (std::int64_t i = sources * experts - 1; i >= 0; --i) {
    if (i % experts > 0) counts[index(i)] -= counts[index(i - 1)];
  }
  return counts;
}

}  // namespace

TokenExchange::TokenExchange(Context& context, const ParallelContext& parallel,
                             const ExpertRows& rows)
    : parallel_(parallel), ends_(rows.ends), pairs_(rows.pairs), rows_(rows.rows) {
  const std::int64_t ranks = parallel.exchange_ranks(), partial = parallel.ranks_of_expert();
  if (ranks == 1) return;
  const std::vector<std::int64_t> counts = counts_of(context, parallel, rows);
  senders_alike_ = context.is_planning();
  const std::int64_t experts = rows.ends.dim(0), holders = ranks / partial;
  const std::int64_t held = experts / holders;  // experts of a rank
  const std::int64_t self = parallel.exchange_rank(), own_holder = self / partial;
  for (std::int64_t at = 0; at < std::ssize(counts); at += held) {
    const auto begin = counts.begin() + at;
    sent_.push_back(std::accumulate(begin, begin + held, std::int64_t{0}));
  }
  const auto row_of = [&](std::int64_t source) {
    return counts.begin() + (senders_alike_ ? 0 : source * experts);
  };
  std::vector<std::int64_t> ends;
  for (std::int64_t source = 0; source < ranks; ++source) {
    for (std::int64_t e = 0; e < held; ++e) {
      own_rows_ += *(row_of(source) + own_holder * held + e);
      ends.push_back(own_rows_);
    }
  }
  ends_ = context.from_host<std::int64_t>({ranks * held}, ends, Category::activation);
  const std::int64_t all = std::accumulate(row_of(self), row_of(self) + experts, std::int64_t{0});
  if (partial == 1) {
    pairs_ = rows.pairs.flat(0, all);
    return;
  }
  repeat(context, rows, partial);
}

void TokenExchange::repeat(Context& context, const ExpertRows& rows, std::int64_t partial) {
  const std::int64_t holders = parallel_.exchange_ranks() / partial, pairs = rows.pairs.numel();
  const Shape shape{rows.rows.dim(0), rows.rows.dim(1) * partial};
  if (context.is_planning()) {
    pairs_ = context.empty({pairs * partial}, DType::i32, Category::activation);
    rows_ = context.empty(shape, DType::i32, Category::activation);
    return;
  }
  const auto pair_of_row = context.to_host<std::int32_t>(rows.pairs);
  std::vector<std::int32_t> order, places(index(pairs * partial), -1);
  std::int64_t begin = 0;
  for (std::int64_t holder = 0; holder < holders; ++holder) {
    const std::int64_t count = sent_[index(parallel_.exchange_rank() * holders + holder)];
    for (std::int64_t copy = 0; copy < partial; ++copy) {
      for (std::int64_t row = begin; row < begin + count; ++row) {
        const std::int32_t pair = pair_of_row[index(row)];
        places[index(pair * partial + copy)] = static_cast<std::int32_t>(order.size());
        order.push_back(pair);
      }
    }
    begin += count;
  }
  pairs_ = context.from_host<std::int32_t>({std::ssize(order)}, order, Category::activation);
  rows_ = context.from_host<std::int32_t>(shape, places, Category::activation);
}

const Tensor& TokenExchange::Moving::arrived(Context& context) {
  if (moves) context.give_way();
  work.wait(context);
  sent = Tensor();
  return rows;
}

CountsTable TokenExchange::counts(Purpose purpose, std::int64_t columns) const {
  const std::int64_t ranks = parallel_.exchange_ranks(), partial = parallel_.ranks_of_expert();
  CountsTable table{static_cast<int>(ranks)};
  if (senders_alike_) table.from_step = 0;
  for (const std::int64_t rows : sent_) {
    table.counts.insert(table.counts.end(), index(partial), rows * columns);
  }
  if (purpose != Purpose::dispatch) std::swap(table.from_step, table.to_step);
  return table;
}

TokenExchange::Moving TokenExchange::move(Context& context, const Tensor& x, std::int64_t rows,
                                          Async async, Purpose purpose) const {
  Moving moving{
      context.empty({rows, x.dim(1)}, x.dtype(), Category::activation), {}, x, async == Async::yes};
  moving.work = parallel_.exchange_group().all_to_all_v(context, x, moving.rows,
                                                        counts(purpose, x.dim(1)), async, purpose);
  return moving;
}

TokenExchange::Moving TokenExchange::dispatch(Context& context, const Tensor& x,
                                              std::int64_t divisor, Async async) const {
  Tensor rows = context.empty({pairs_.numel(), x.dim(1)}, x.dtype(), Category::activation);
  gather_rows(context, {.x = x, .indices = pairs_, .divisor = divisor, .y = rows});
  if (sent_.empty()) return {.rows = rows};
  return move(context, rows, own_rows_, async, Purpose::dispatch);
}

TokenExchange::Moving TokenExchange::give_back(Context& context, const Tensor& y,
                                               Async async) const {
  if (sent_.empty()) return {.rows = y};
  return move(context, y, pairs_.numel(), async, Purpose::combine);
}

void TokenExchange::combine(Context& context, Moving& back, const Tensor& into) const {
  sum_rows(context, {.x = back.arrived(context), .rows = rows_, .y = into});
}

void TokenExchange::combine_pairs(Context& context, Moving& back, const Tensor& into) const {
  const std::int64_t partial = parallel_.ranks_of_expert();
  sum_rows(context, {.x = back.arrived(context),
                     .rows = rows_.view({rows_.numel() / partial, partial}),
                     .y = into});
}

}  // namespace trident
