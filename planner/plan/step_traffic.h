// What a rank sends in a step, read from the trace of one that was run on a planning device, and
// what the ranks at other places of the same groups send: members of a group call the same
// operations, of which some have other shares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/operation_trace.h"
#include "parallel/collectives/collective.h"
#include "scheduler/action.h"

namespace trident {

class StepTraffic {
 public:
  // Operations that are alike, and how many there are in a step.
  struct Operation {
    std::string group;
    int size = 1;
    trident::Operation operation{};
    Algorithm algorithm{};
    DType dtype{};
    std::int64_t count = 0;  // elements, as in Descriptor
    int root = -1;
    auto operator<=>(const Operation&) const = default;
  };
  using Times = std::map<Operation, std::int64_t>;

  StepTraffic() = default;
  // All that the trace has.
  explicit StepTraffic(const OperationTrace& trace);
  // Of a step that runs `all` where the trace has `run`, in order, an action each. What an action
  // sends depends on its stage and kind, those of its neighbours, and whether it is its stage's
  // first or last of the kind. Nothing where that doesn't hold of the trace, or where `all` has
  // others.
  static std::optional<StepTraffic> stretched(const OperationTrace& trace,
                                              const std::vector<Action>& run,
                                              const std::vector<Action>& all);

  const Times& times() const { return times_; }
  // Bytes that the member at `place` of a group sends there.
  // The algorithms are those of `more`, or built in.
  std::int64_t sent(const std::string& group, int place,
                    std::span<const Collective> more = {}) const;
  // That of a rank between two on a line, where times grow evenly: `part` of `whole` from this one
  // to the other. Nothing where they don't.
  std::optional<StepTraffic> between(const StepTraffic& other, std::int64_t part,
                                     std::int64_t whole) const;
  bool operator==(const StepTraffic& other) const { return times_ == other.times_; }

 private:
  Times times_;
};

}  // namespace trident
