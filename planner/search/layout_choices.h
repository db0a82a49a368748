// The layouts among which a search chooses (layout_search.h), before they are configs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/layout_search.h"
#include "settings/config.h"

namespace trident {

// Axes by their short names in the config: tensor is tp, and so on.
struct Layout {
  std::int64_t tp = 1, pp = 1, dp = 1, chunks = 1, micro = 1, zero = 0;
  std::string schedule = "1f1b", recompute = "none";
  bool sequence_parallel = false;
  bool even = true;  // its layers are split evenly, or by the stages' work
  std::int64_t microbatches = 1;
  double seconds = 0, bytes = 0;  // at least, by LayoutBounds
};

class LayoutChoices {
 public:
  explicit LayoutChoices(const LayoutRequest&);

  // The config on one rank.
  const Config& base() const { return base_; }
  // Sums over the tensor group go beside products, where they can.
  bool overlaps() const { return overlaps_; }
  // The layers of each stage that the config gives; none where it gives no numbers.
  std::vector<std::int64_t> held_split() const;
  // Overrides that say what the config gives of these keys.
  std::vector<std::string> set_of_held(const std::vector<std::string>& keys) const;

  Config parse(const std::vector<std::string>& set) const;
  // Overrides of the config, without those of the keys that it holds; and all.
  std::vector<std::string> set_of(const Layout&) const;
  std::vector<std::string> set_of_all(const Layout&) const;

  // Calls `consider` with each layout of so many ranks, and `prune` with why others are none.
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
  void with_schedules(Layout, const Consider&, const Prune&) const;
  void with_schedule(Layout, const std::string& schedule, const Consider&, const Prune&) const;
  void with_splits(Layout, const Consider&) const;
  void with_states(Layout, const Consider&) const;

  const LayoutRequest& request_;
  bool overlaps_ = false;
  Config base_;
  std::map<std::string, std::string> keys_;  // of the axes
  std::map<std::string, nlohmann::json> held_;
};

}  // namespace trident
