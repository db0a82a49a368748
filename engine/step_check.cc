#include "engine/step_check.h"

#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "kernels/elementwise.h"

namespace trident {
namespace {

constexpr int squares = ExactSum::limbs + 1;           // the state of an exact sum
constexpr std::int64_t kSave = std::int64_t{1} << 32;  // more than the number of ranks

}  // namespace

StepCheck::StepCheck(ProcessGroup world, int losses, const StatisticTable& statistics)
    : world_(std::move(world)), losses_(losses), table_(statistics) {}

void StepCheck::begin(Context& context, const Tensor& gradient_squares, const Tensor& statistics,
                      const double* loss_sum, int place, RankRequests wishes, BatchTokens tokens,
                      Async async) {
  // Squares, the counts of ranks that want to stop and to save, the bits of each loss (0 on all
  // other ranks, so the sum keeps them), and the statistics.
  std::vector<std::int64_t> values(static_cast<std::size_t>(elements()));
  values[squares] = (wishes.stop ? 1 : 0) + (wishes.save ? kSave : 0);
  if (loss_sum != nullptr) {
    values[static_cast<std::size_t>(squares + 1 + place)] = std::bit_cast<std::int64_t>(*loss_sum);
  }
  shared_ = context.from_host<std::int64_t>({elements()}, values, Category::workspace);
  copy(context, gradient_squares, shared_.flat(0, squares));
  if (statistics) copy(context, statistics, shared_.flat(squares + 1 + losses_, table_.elements()));
  work_ = world_.all_reduce(context, shared_, ReduceOp::sum, async);
  tokens_ = tokens;
  open_ = true;
}

StepResult StepCheck::end(Context& context) {
  work_.wait(context);
  const std::vector<std::int64_t> values = context.to_host<std::int64_t>(shared_);
  work_ = {};
  shared_ = {};
  open_ = false;
  bytes_sent_ = world_.traffic().bytes_sent;
  StepResult result;
  for (int place = 0; place < losses_; ++place) {
    result.loss += std::bit_cast<double>(values[static_cast<std::size_t>(squares + 1 + place)]);
  }
  result.tokens = tokens_;
  result.empty = tokens_.counted == 0;
  result.loss /= tokens_.counted;  // 0 / 0 is NaN
  result.grad_norm = std::sqrt(ExactSum::from_state(std::span(values).first<squares>()).value());
  result.applied = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  result.stop = values[squares] % kSave != 0;
  result.save = values[squares] / kSave != 0;
  result.statistics = table_.values(
      std::span(values).last(static_cast<std::size_t>(table_.elements())), tokens_.all);
  return result;
}

}  // namespace trident
