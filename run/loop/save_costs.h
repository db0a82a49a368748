// What its saves cost a run, and the intervals between them that this makes best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trident {

// Of one kind of saves.
class SaveCosts {
 public:
  // One has ended, well or not.
  void ended() { ++saves_; }
  // Training has waited for one.
  void waited(double seconds) { waited_ += seconds; }
  // An iteration has taken so long, without the waits, beside a save or (the usual ones) not.
  void iteration(double seconds, bool beside);

  std::int64_t saves() const { return saves_; }
  // The median of those without a save beside, or of all where these are few; 0: there was none.
  double usual_iteration() const;
  // Seconds of training that a save has cost on average: waits, and slower iterations beside it.
  double each() const;

 private:
  std::int64_t saves_ = 0, seen_ = 0;
  double waited_ = 0;
  std::vector<double> usual_, beside_;  // seconds; of the usual ones the last few
  std::size_t next_ = 0;
};

// What to tell of them: `durable` are saved in checkpoint.save; `on_nodes` (null: there are none)
// on the nodes. Hours between failures of any kind, and between those that take the nodes' along.
// "" where too little is known yet.
std::string best_intervals_text(const SaveCosts& durable, const SaveCosts* on_nodes,
                                double mtbf_hours, double durable_mtbf_hours);

}  // namespace trident
