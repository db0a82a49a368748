// The traffic of a rank in a step, read from the trace of a step on a planning device, and the
// traffic of the ranks at other places of the same groups. All members of a group call the same
// operations, and in some of them their shares differ.
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
  // The key of equal operations; Times counts them in a step.
  struct Operation {
    std::string group;
    int size = 1;
    trident::Operation operation{};
    Algorithm algorithm{};
    DType dtype{};
    std::int64_t count = 0;  // elements, as in Descriptor
    int root = -1;
    // The bytes of an all_to_all_v, whose count doesn't say, as the traced rank sends them. Others
    // may send a row more or less an expert.
    std::int64_t sent = 0;
    auto operator<=>(const Operation&) const = default;
  };
  using Times = std::map<Operation, std::int64_t>;

  StepTraffic() = default;
  // Takes all operations of the trace.
  explicit StepTraffic(const OperationTrace& trace);
  // Extrapolates from `run`, the actions of the trace in order, to the list `all`. The messages of
  // an action depend on its stage and kind, on those of its neighbours, and on whether it is its
  // stage's first or last of the kind. Returns nothing where the trace contradicts this rule, or
  // where `all` has an action that the trace lacks.
  static std::optional<StepTraffic> extrapolated(const OperationTrace& trace,
                                                 const std::vector<Action>& run,
                                                 const std::vector<Action>& all);

  const Times& times() const { return times_; }
  // Returns the bytes that the member at `place` of a group sends in it. The algorithms are those
  // of `more` and the built-in ones.
  std::int64_t sent(const std::string& group, int place,
                    std::span<const Collective> more = {}) const;
  // Interpolates between two ranks, where counts grow linearly: `part` of `whole` from this rank to
  // the other. Returns nothing where they don't.
  std::optional<StepTraffic> between(const StepTraffic& other, std::int64_t part,
                                     std::int64_t whole) const;
  bool operator==(const StepTraffic& other) const { return times_ == other.times_; }

 private:
  Times times_;
};

}  // namespace trident
