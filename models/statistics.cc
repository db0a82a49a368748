#include "models/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "core/exact_sum.h"
#include "kernels/elementwise.h"

namespace trident {

constexpr std::int64_t sum_elements = ExactSum::limbs + 1;

StatisticTable::StatisticTable(const std::vector<Statistic>& list, Derive derive)
    : derive_(std::move(derive)) {
  for (const Statistic& one : list) {
    const bool is_count = one.kind == StatisticKind::count;
    const std::int64_t elements = is_count ? one.size : sum_elements;
    const bool fits = one.layer >= 0 && one.size >= 1 && (is_count || one.size == 1);
    if (!fits) {
      throw Error(
          fmt::format("statistics: got \"{}\" of layer {} with {} elements, need layer 0 or "
                      "above and {}",
                      one.name, one.layer, one.size, is_count ? "at least 1" : "1"));
    }
    const Range range{.kind = one.kind, .begin = elements_, .elements = elements};
    if (!ranges_.emplace(std::pair(one.name, one.layer), range).second) {
      throw Error(
          fmt::format("statistics: \"{}\" of layer {} is listed twice", one.name, one.layer));
    }
    elements_ += elements;
  }
}

const StatisticTable::Range& StatisticTable::range_of(const std::string& name,
                                                      std::int64_t layer) const {
  const auto found = ranges_.find({name, layer});
  if (found != ranges_.end()) return found->second;
  throw Error(fmt::format("statistics: the model lists no \"{}\" of layer {}", name, layer));
}

StepStatistics StatisticTable::values(std::span<const std::int64_t> sums, double tokens) const {
  StepStatistics result;
  std::map<std::string, std::array<std::int64_t, sum_elements>> losses;
  for (const auto& [key, range] : ranges_) {
    const auto& [name, layer] = key;
    const auto own = sums.subspan(static_cast<std::size_t>(range.begin),
                                  static_cast<std::size_t>(range.elements));
    if (range.kind == StatisticKind::auxiliary_loss) {
      auto& state = losses[name];  // states add up, see ExactSum::state()
      std::ranges::transform(state, own, state.begin(), std::plus());
      continue;
    }
    auto& layers = result.statistics[name];
    layers.resize(std::max(layers.size(), static_cast<std::size_t>(layer) + 1));
    auto& values = layers[static_cast<std::size_t>(layer)];
    if (range.kind == StatisticKind::mean) {
      values = {ExactSum::from_state(own.first<sum_elements>()).value() / tokens};
    } else {
      values.assign(own.begin(), own.end());
    }
  }
  for (const auto& [name, state] : losses) {
    result.auxiliary_losses[name] = ExactSum::from_state(state).value() / tokens;
  }
  if (derive_) derive_(tokens, result);
  return result;
}

Tensor StatisticSums::sums_of(const std::string& name, std::int64_t layer, bool is_count) const {
  const StatisticTable::Range& range = table_->range_of(name, layer);
  if (is_count != (range.kind == StatisticKind::count)) {
    throw Error(fmt::format("statistics: got {} for \"{}\" of layer {}, need {}",
                            is_count ? "counts" : "values", name, layer,
                            is_count ? "values" : "counts"));
  }
  return sums_.flat(range.begin, range.elements);
}

void StatisticSums::add(Context& context, const std::string& name, std::int64_t layer,
                        const Tensor& values) const {
  if (!is_recording()) return;
  const Tensor to = sums_of(name, layer, false);
  Tensor wide = values;
  if (values.dtype() != DType::f64) {
    wide = context.empty(values.shape(), DType::f64, Category::workspace);
    copy(context, values, wide);
  }
  exact_sum(context, wide, to);
}

void StatisticSums::count(Context& context, const std::string& name, std::int64_t layer,
                          const Tensor& counts) const {
  if (is_recording()) trident::add(context, counts, sums_of(name, layer, true));
}

}  // namespace trident
