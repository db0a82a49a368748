// Enumerates the layouts that a search chooses from (layout_search.h), before they are configs.
// After construction a LayoutChoices doesn't change, so several threads may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/layout_search.h"
#include "settings/config.h"

namespace trident {

// Ranks share samples where each has at least so many positions, so that a layer's compute covers
// its ring (Megatron Core's guide begins at 8,192 tokens a sample).
inline constexpr std::int64_t least_context_positions = 4096;

// The sizes have the axes' short names in the config: tensor is tp, and so on.
struct Layout {
  std::int64_t tp = 1, cp = 1, pp = 1, dp = 1, chunks = 1, micro = 1, zero = 0;
  std::int64_t ep = 1, etp = 0;  // etp 0: the config's default, tp
  std::string schedule = "1f1b", recompute = "none";
  bool sequence_parallel = false;
  bool even = true;  // true: layers are split evenly; false: by the stages' work
  std::int64_t microbatches = 1;
  std::int64_t expert_tensor() const { return etp > 0 ? etp : tp; }
  bool exchanges() const { return ep * expert_tensor() > 1 && etp > 0; }
  // The least data-parallel size for these ep and etp.
  std::int64_t least_data() const {
    const std::int64_t experts = ep * expert_tensor();
    return experts / std::gcd(experts, tp * cp);
  }
  // The ranks that share the states of a parameter, and those that hold each expert.
  std::int64_t sharers() const { return dp * cp; }
  std::int64_t holders() const { return dp * cp * tp / (ep * expert_tensor()); }
  double seconds = 0, bytes = 0;  // lower bounds, by LayoutBounds
};

class LayoutChoices {
 public:
  explicit LayoutChoices(const LayoutRequest&);

  // Returns the config on one rank.
  const Config& base() const { return base_; }
  // Whether all-reduces of the tensor group run concurrently with products, where they can.
  bool overlaps() const { return overlaps_; }
  // Returns the layers of each stage as in the config; empty where the config gives no numbers.
  std::vector<std::int64_t> held_split() const;
  // Returns overrides with the config's own values of these keys.
  std::vector<std::string> set_of_held(const std::vector<std::string>& keys) const;

  Config parse(const std::vector<std::string>& set) const;
  // Returns overrides of the config: set_of() without the keys whose values the config fixes,
  // set_of_all() with them.
  std::vector<std::string> set_of(const Layout&) const;
  std::vector<std::string> set_of_all(const Layout&) const;

  // Calls `consider` with each layout of `ranks` ranks, and `prune` with the reason why a
  // combination is no layout.
  using Consider = std::function<void(const Layout&)>;
  using Prune = std::function<void(const std::string& reason)>;
  void each(std::int64_t ranks, const Consider& consider, const Prune& prune) const;

 private:
  void hold(const std::string& key, const nlohmann::json& given);
  template <class T>
  std::optional<T> held(const std::string& key) const {
    const auto found = held_.find(key);
    if (found == held_.end()) return std::nullopt;
    return found->second.template get<T>();
  }
  void with_context(Layout, std::int64_t ranks, const Consider&, const Prune&) const;
  void with_batches(Layout, const Consider&, const Prune&) const;
  void with_experts(Layout, const Consider&, const Prune&) const;
  void with_schedules(Layout, const Consider&, const Prune&) const;
  void with_schedule(Layout, const std::string& schedule, const Consider&, const Prune&) const;
  void with_splits(Layout, const Consider&) const;
  void with_states(Layout, const Consider&) const;

  const LayoutRequest& request_;
  bool overlaps_ = false;
  Config base_;
  std::int64_t common_batch_ = 1;            // divides all batch sizes, those of a ramp-up, too
  std::string rank_order_;                   // of the config, with all axes; "" where it gives none
  std::map<std::string, std::string> keys_;  // config keys of the axes
  std::map<std::string, nlohmann::json> held_;
};

}  // namespace trident
