#include "kernels/cpu/attention_shares.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/simd/table.h"

namespace trident::cpu {
namespace {

using simd::attention_block;

// The costs are numbers of blocks of scores. What documents hide isn't known here.
std::vector<std::int64_t> unit_costs(const AttentionShape& shape, const AttentionMask& mask,
                                     bool backward) {
  const std::int64_t queries = shape.sequence, keys = shape.keys();
  const std::int64_t offset = mask.query_begin - mask.key_begin;
  std::vector<std::int64_t> costs;
  for (std::int64_t at = 0; at < (backward ? keys : queries); at += attention_block) {
    std::int64_t first, end;
    if (backward) {  // the queries that see these keys
      first = at - offset;
      end = mask.window > 0 ? std::min(queries, at + attention_block - 1 - offset + mask.window)
                            : queries;
    } else {  // the keys that these queries see
      first = mask.window > 0 ? at + offset - mask.window + 1 : 0;
      end = std::min(at + attention_block + offset, keys);
    }
    const std::int64_t count = std::max<std::int64_t>(0, end - std::max<std::int64_t>(0, first));
    costs.push_back(1 + (count + attention_block - 1) / attention_block);
  }
  return costs;
}

// A task of fewer blocks of scores isn't worth dividing.
constexpr std::int64_t least_divided = 16;

}  // namespace

AttentionShares::AttentionShares(const AttentionShape& shape, const AttentionMask& mask,
                                 bool backward, int threads)
    : tasks_(shape.batch * shape.groups),
      heads_(shape.heads / shape.groups),
      costs_(unit_costs(shape, mask, backward)),
      head_cost_(std::accumulate(costs_.begin(), costs_.end(), std::int64_t{0})) {
  divisible_ = heads_ * head_cost_ >= least_divided;
  const std::int64_t most = divisible_ ? tasks_ * heads_ * units_of_head() : tasks_;
  threads_ = static_cast<int>(std::min<std::int64_t>(threads, most));
  for (int thread = 1; thread < threads_; ++thread) {
    divides_ = divides_ || begin_of(thread).unit > 0;
  }
}

AttentionShares::Place AttentionShares::begin_of(int thread) const {
  const std::int64_t cost = heads_ * head_cost_;
  const std::int64_t at = tasks_ * cost * thread / threads_;
  const std::int64_t task = at / cost, rest = at % cost;
  if (!divisible_) return {.task = 2 * rest >= cost ? task + 1 : task, .unit = 0};
  std::int64_t unit = 0;
  for (std::int64_t before = 0; before < rest % head_cost_; ++unit) {
    before += costs_[static_cast<std::size_t>(unit)];
  }
  unit += rest / head_cost_ * units_of_head();
  if (unit == heads_ * units_of_head()) return {.task = task + 1, .unit = 0};
  return {.task = task, .unit = unit};
}

std::vector<AttentionShare> AttentionShares::of(int thread) const {
  const Place from = begin_of(thread), to = begin_of(thread + 1);
  std::vector<AttentionShare> shares;
  for (std::int64_t task = from.task; task < tasks_ && task <= to.task; ++task) {
    const AttentionShare share{.task = task,
                               .begin = task == from.task ? from.unit : 0,
                               .end = task == to.task ? to.unit : heads_ * units_of_head()};
    if (share.begin < share.end) shares.push_back(share);
  }
  return shares;
}

}  // namespace trident::cpu
