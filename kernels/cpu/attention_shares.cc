#include "kernels/cpu/attention_shares.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/simd/table.h"

namespace trident::cpu {
namespace {

using simd::attention_block;

// The cost of each unit, in blocks of scores. Documents' borders are not known here, so keys that
// they hide count, too.
std::vector<std::int64_t> unit_costs(const AttentionShape& shape, const AttentionMask& mask,
                                     bool backward) {
  const std::int64_t queries = shape.sequence, keys = shape.keys();
  const std::int64_t offset = mask.query_begin - mask.key_begin;
  // A window beyond all positions is none.
  const std::int64_t window = mask.window < queries + keys + std::abs(offset) ? mask.window : 0;
  std::vector<std::int64_t> costs;
  for (std::int64_t at = 0; at < (backward ? keys : queries); at += attention_block) {
    std::int64_t first, end;
    if (backward) {  // the queries that see these keys
      first = at - offset;
      end = window > 0 ? std::min(queries, at + attention_block - 1 - offset + window) : queries;
    } else {  // the keys that these queries see
      first = window > 0 ? at + offset - window + 1 : 0;
      end = std::min(at + attention_block + offset, keys);
    }
    const std::int64_t count = std::max<std::int64_t>(0, end - std::max<std::int64_t>(0, first));
    costs.push_back(1 + (count + attention_block - 1) / attention_block);
  }
  return costs;
}

}  // namespace

AttentionShares::AttentionShares(const AttentionShape& shape, const AttentionMask& mask,
                                 bool backward, int threads)
    : tasks_(shape.batch * shape.groups),
      heads_(shape.heads / shape.groups),
      costs_(unit_costs(shape, mask, backward)),
      before_{0} {
  for (const std::int64_t cost : costs_) before_.push_back(before_.back() + cost);
  // A task of fewer blocks of scores isn't worth dividing.
  constexpr std::int64_t least_divided = 16;
  const std::int64_t units = heads_ * units_of_head();
  threads_ = static_cast<int>(std::min<std::int64_t>(threads, tasks_ * units));
  const bool divided = tasks_ > 0 && heads_ * before_.back() >= least_divided &&
                       10 * longest(true) <= 9 * longest(false);
  if (!divided) threads_ = static_cast<int>(std::min<std::int64_t>(threads, tasks_));
  for (int thread = 0; thread < threads_; ++thread) {
    const Place from = begin_of(thread, divided), to = begin_of(thread + 1, divided);
    std::vector<AttentionShare>& own = shares_.emplace_back();
    int parts = 0;
    for (std::int64_t task = from.task; task < tasks_ && task <= to.task; ++task) {
      const AttentionShare share{.task = task,
                                 .begin = task == from.task ? from.unit : 0,
                                 .end = task == to.task ? to.unit : units};
      if (share.begin == share.end) continue;
      own.push_back(share);
      any_whole_ = any_whole_ || is_whole(share);
      parts += is_whole(share) ? 0 : 1;
    }
    most_parts_ = std::max(most_parts_, parts);
  }
}

std::int64_t AttentionShares::cost_before(const Place& place) const {
  const std::int64_t units = units_of_head();
  return (place.task * heads_ + place.unit / units) * before_.back() +
         before_[static_cast<std::size_t>(place.unit % units)];
}

std::int64_t AttentionShares::longest(bool divided) const {
  std::int64_t most = 0;
  for (int thread = 0; thread < threads_; ++thread) {
    most = std::max(
        most, cost_before(begin_of(thread + 1, divided)) - cost_before(begin_of(thread, divided)));
  }
  return most;
}

AttentionShares::Place AttentionShares::begin_of(int thread, bool divided) const {
  const std::int64_t units = units_of_head(), cost = heads_ * before_.back();
  if (!divided) {
    const std::int64_t threads = std::min<std::int64_t>(threads_, tasks_);
    return {.task = tasks_ * std::min<std::int64_t>(thread, threads) / threads, .unit = 0};
  }
  const std::int64_t at = tasks_ * cost * thread / threads_;
  const std::int64_t task = at / cost, head = at % cost / before_.back(),
                     rest = at % before_.back();
  // The unit that begins nearest to `rest`.
  auto unit = static_cast<std::int64_t>(std::ranges::lower_bound(before_, rest) - before_.begin());
  const auto away = [&](std::int64_t i) {
    return std::abs(before_[static_cast<std::size_t>(i)] - rest);
  };
  if (unit > 0 && away(unit - 1) < away(unit)) --unit;
  const std::int64_t all = head * units + unit;
  return all == heads_ * units ? Place{.task = task + 1, .unit = 0}
                               : Place{.task = task, .unit = all};
}

}  // namespace trident::cpu
