#include "scheduler/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace trident {

namespace {

constexpr size_t max_problems = 20;

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule) {}

  void run() {
    check_sizes();
    stop_if_wrong();
    check_placement();
    stop_if_wrong();
    check_actions();
    stop_if_wrong();
    check_progress();
    stop_if_wrong();
    check_transfers();
    stop_if_wrong();
  }

 private:
  // The position of an action in the lists.
  struct Place {
    int rank = -1;
    int position = -1;
  };

  void problem(std::string text) {
    if (problems_.size() < max_problems) problems_.push_back(std::move(text));
  }

  void stop_if_wrong() const {
    if (!problems_.empty()) throw RequestError(problems_);
  }

  std::string describe(Place place) const {
    return fmt::format("rank {} position {} ({})", place.rank, place.position,
                       to_string(schedule_.ranks[place.rank][place.position]));
  }

  void check_sizes() {
    const Schedule& s = schedule_;
    if (s.stages < 1 || s.microbatches < 1 || s.chunks < 1) {
      problem(fmt::format("got {} stages, {} micro-batches, {} chunks; each has to be at least 1",
                          s.stages, s.microbatches, s.chunks));
    }
    if (std::ssize(s.placement) != s.stages || std::ssize(s.ranks) != s.stages) {
      problem(fmt::format("{} stages need as many ranks; the placement has {}, the actions {}",
                          s.stages, s.placement.size(), s.ranks.size()));
    }
    // Checked before any allocation by sizes that a file may have claimed.
    size_t actions = 0;
    for (const auto& rank : s.ranks) actions += rank.size();
    const double needed = 2.0 * s.stages * s.chunks * s.microbatches;
    if (needed > 2.0 * static_cast<double>(actions)) {
      problem(fmt::format("{} actions can't cover {} stages and {} micro-batches ({} needed)",
                          actions, int64_t{s.stages} * s.chunks, s.microbatches, needed));
    }
  }

  void check_placement() {
    const int total = schedule_.total_stages();
    holder_.assign(total, -1);
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      const auto& held = schedule_.placement[rank];
      if (std::ssize(held) != schedule_.chunks) {
        problem(fmt::format("placement: rank {} holds {} stages, needs {}", rank, held.size(),
                            schedule_.chunks));
      }
      for (int stage : held) {
        if (stage < 0 || stage >= total) {
          problem(fmt::format("placement: rank {} holds stage {}, outside [0, {})", rank, stage,
                              total));
        } else if (holder_[stage] >= 0) {
          problem(fmt::format("placement: stage {} is on rank {} and on rank {}, needs one rank",
                              stage, holder_[stage], rank));
        } else {
          holder_[stage] = rank;
        }
      }
    }
  }

  size_t cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * schedule_.microbatches + microbatch;
  }

  Place& place_of(const Action& action) {
    switch (action.kind) {
      case Kind::forward:
        return forward_[cell(action.stage, action.microbatch)];
      case Kind::backward_weight:
        return weight_[cell(action.stage, action.microbatch)];
      case Kind::backward:
      case Kind::backward_input:
        break;
    }
    return backward_[cell(action.stage, action.microbatch)];
  }

  void check_actions() {
    const size_t cells = static_cast<size_t>(schedule_.total_stages()) * schedule_.microbatches;
    forward_.assign(cells, {});
    backward_.assign(cells, {});
    weight_.assign(cells, {});
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      for (int i = 0; i < std::ssize(schedule_.ranks[rank]); ++i) check_action({rank, i});
    }
    for (int stage = 0; stage < schedule_.total_stages(); ++stage) {
      for (int mb = 0; mb < schedule_.microbatches; ++mb) check_complete(stage, mb);
    }
  }

  void check_action(Place at) {
    const Action& action = schedule_.ranks[at.rank][at.position];
    const int total = schedule_.total_stages();
    if (action.stage < 0 || action.stage >= total || action.microbatch < 0 ||
        action.microbatch >= schedule_.microbatches) {
      return problem(fmt::format("{}: stages are in [0, {}), micro-batches in [0, {})",
                                 describe(at), total, schedule_.microbatches));
    }
    if (holder_[action.stage] != at.rank) {
      return problem(fmt::format("{}: stage {} is held by rank {}", describe(at), action.stage,
                                 holder_[action.stage]));
    }
    if (action.fused && !forms_pair(at)) {
      return problem(
          fmt::format("{}: a pair is a forward and, right after it, the full backward of another "
                      "stage or micro-batch",
                      describe(at)));
    }
    Place& place = place_of(action);
    if (place.rank >= 0) {
      return problem(fmt::format("{}: done already by {} at position {}", describe(at),
                                 to_string(schedule_.ranks[place.rank][place.position]),
                                 place.position));
    }
    const size_t here = cell(action.stage, action.microbatch);
    if (action.kind == Kind::backward_weight) {
      const Place& input = backward_[here];
      if (input.rank < 0) {
        problem(fmt::format("{}: runs before its {}", describe(at),
                            to_string({Kind::backward_input, action.stage, action.microbatch})));
      } else if (schedule_.ranks[input.rank][input.position].kind == Kind::backward) {
        problem(fmt::format("{}: the full backward at position {} gave the weight gradient",
                            describe(at), input.position));
      }
    } else if (action.kind != Kind::forward && forward_[here].rank < 0) {
      problem(fmt::format("{}: runs before its {}", describe(at),
                          to_string({Kind::forward, action.stage, action.microbatch})));
    }
    place = at;
  }

  bool forms_pair(Place at) const {
    const auto& actions = schedule_.ranks[at.rank];
    if (at.position + 1 == std::ssize(actions)) return false;
    const Action &first = actions[at.position], &second = actions[at.position + 1];
    return first.kind == Kind::forward && second.kind == Kind::backward && !second.fused &&
           (first.stage != second.stage || first.microbatch != second.microbatch);
  }

  void check_complete(int stage, int microbatch) {
    const size_t here = cell(stage, microbatch);
    const Place& back = backward_[here];
    const auto missing = [&](const char* what) {
      problem(fmt::format("rank {}: stage {} never runs {} of micro-batch {}", holder_[stage],
                          stage, what, microbatch));
    };
    if (forward_[here].rank < 0) missing("the forward (F)");
    if (back.rank < 0) {
      missing("a backward (B or I)");
    } else if (schedule_.ranks[back.rank][back.position].kind == Kind::backward_input &&
               weight_[here].rank < 0) {
      missing("the weight gradient (W)");
    }
  }

  // The position of the action of another stage whose output this action needs; {-1, -1} if none.
  Place awaited(const Action& action) const {
    if (action.kind == Kind::forward) {
      return action.stage == 0 ? Place{} : forward_[cell(action.stage - 1, action.microbatch)];
    }
    if (action.kind == Kind::backward_weight || action.stage + 1 == schedule_.total_stages()) {
      return {};
    }
    return backward_[cell(action.stage + 1, action.microbatch)];
  }

  // The action whose output a rank's next cell lacks, and the action that waits for it; rank -1 if
  // the cell can run.
  struct Blocked {
    Place waiting, source;
  };
  Blocked blocked(int rank, const std::vector<int>& next) const {
    const auto& actions = schedule_.ranks[rank];
    const int first = next[rank];
    for (int i = first; i < first + (actions[first].fused ? 2 : 1); ++i) {
      const Place source = awaited(actions[i]);
      if (source.rank >= 0 && next[source.rank] <= source.position) return {{rank, i}, source};
    }
    return {};
  }

  // Runs the lists without times: a rank runs until its next cell waits for an action not done.
  void check_progress() {
    const int p = schedule_.stages;
    std::vector<int> next(p, 0);
    std::vector<std::vector<Place>> waiting(p);  // [rank] waiting ranks, with the awaited position
    std::vector<int> ready;
    for (int rank = p - 1; rank >= 0; --rank) ready.push_back(rank);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      const auto& actions = schedule_.ranks[rank];
      while (next[rank] < std::ssize(actions)) {
        if (const Place source = blocked(rank, next).source; source.rank >= 0) {
          waiting[source.rank].push_back({rank, source.position});
          break;
        }
        next[rank] += actions[next[rank]].fused ? 2 : 1;
        // Wakes only the ranks whose awaited action is done.
        auto& sleepers = waiting[rank];
        const auto asleep =
            std::partition(sleepers.begin(), sleepers.end(),
                           [&](const Place& other) { return other.position >= next[rank]; });
        for (auto woken = asleep; woken != sleepers.end(); ++woken) ready.push_back(woken->rank);
        sleepers.erase(asleep, sleepers.end());
      }
    }
    for (int rank = 0; rank < p; ++rank) {
      if (next[rank] < std::ssize(schedule_.ranks[rank])) return report_cycle(rank, next);
    }
  }

  // Every stuck rank waits for another stuck rank, so following the waits leads into a cycle.
  void report_cycle(int rank, const std::vector<int>& next) {
    std::vector<int> seen;
    while (std::find(seen.begin(), seen.end(), rank) == seen.end()) {
      seen.push_back(rank);
      rank = blocked(rank, next).source.rank;
    }
    std::string text = "deadlock: ";
    for (auto at = std::find(seen.begin(), seen.end(), rank); at != seen.end(); ++at) {
      const auto [head, source] = blocked(*at, next);
      text += fmt::format("{} waits for {}, which comes after ", describe(head), describe(source));
    }
    problem(text + describe(blocked(rank, next).waiting));
  }

  // Links keep order (lower.h): when a rank consumes a transfer early, the transfers sent before it
  // wait in the rank's buffers.
  void check_transfers() {
    using Link = std::pair<int, bool>;             // the other rank, and whether it carries
                                                   // activations
    std::vector<int> number(2 * forward_.size());  // of a transfer on its link, from 1
    const auto index = [&](int stage, int microbatch, bool forward) {
      return 2 * cell(stage, microbatch) + (forward ? 0 : 1);
    };
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      std::map<Link, int> sent;
      for (const Action& action : schedule_.ranks[rank]) {
        if (action.kind == Kind::backward_weight) continue;
        const bool forward = action.kind == Kind::forward;
        const int to = action.stage + (forward ? 1 : -1);
        if (to < 0 || to >= schedule_.total_stages() || holder_[to] == rank) continue;
        number[index(to, action.microbatch, forward)] = ++sent[{holder_[to], forward}];
      }
    }
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      std::map<Link, std::pair<int, int>> links;  // the highest number consumed, and the count
      for (int i = 0; i < std::ssize(schedule_.ranks[rank]); ++i) {
        const Action& action = schedule_.ranks[rank][i];
        const Place source = awaited(action);
        if (source.rank < 0 || source.rank == rank) continue;
        const bool forward = action.kind == Kind::forward;
        auto& [highest, taken] = links[{source.rank, forward}];
        highest = std::max(highest, number[index(action.stage, action.microbatch, forward)]);
        if (highest - ++taken <= max_waiting_transfers) continue;
        return problem(fmt::format(
            "{}: {} transfers that rank {} sends before this one's would wait in buffers of rank "
            "{}; at most {} may, so run them in a more similar order on the two ranks",
            describe({rank, i}), highest - taken, source.rank, rank, max_waiting_transfers));
      }
    }
  }

  const Schedule& schedule_;
  std::vector<std::string> problems_;
  std::vector<int> holder_;  // the rank of each stage
  // [stage][micro-batch] the position of each action; backward_ is B or I
  std::vector<Place> forward_, backward_, weight_;
};

}  // namespace

void validate(const Schedule& schedule) {
  Validator(schedule).run();
}

}  // namespace trident
