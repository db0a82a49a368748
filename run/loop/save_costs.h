// The cost of a run's saves, and the best intervals between saves at this cost (Daly 2006). Each
// rank counts on its own; no call is collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trident {

// The costs of one kind of saves: in checkpoint.save, or on the nodes.
class SaveCosts {
 public:
  // A save has ended, whether it succeeded or failed.
  void ended() { ++saves_; }
  // Training has waited for a save.
  void waited(double seconds) { waited_ += seconds; }
  // An iteration has taken `seconds` without the waits. `during_save`: a save ran concurrently;
  // otherwise the iteration counts as usual.
  void iteration(double seconds, bool during_save);

  std::int64_t saves() const { return saves_; }
  // The median time of iterations without a concurrent save, or of all iterations if these are few;
  // 0: there were none.
  double usual_iteration() const;
  // The mean cost of a save in seconds of training: waits, and slower iterations during the save.
  double each() const;

 private:
  std::int64_t saves_ = 0, seen_ = 0;
  double waited_ = 0;
  std::vector<double> usual_, during_save_;  // seconds; of the usual ones the last 101
  std::size_t next_ = 0;
};

// A line about the best intervals. `durable`: the saves in checkpoint.save; `on_nodes`: the saves
// on the nodes (null: none). `mtbf_hours` is the time between failures of any kind,
// `durable_mtbf_hours` the time between failures that also destroy the checkpoints on nodes. "" if
// too little is known yet.
std::string best_intervals_text(const SaveCosts& durable, const SaveCosts* on_nodes,
                                double mtbf_hours, double durable_mtbf_hours);

}  // namespace trident
