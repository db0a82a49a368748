// The processes of an MPI job before they have a transport, and after. Every wait has a limit; who
// doesn't come is named, once, and ends the job.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace trident {

class MpiJob {
 public:
  // Initialises MPI and finds out who is there. Collective. `rank` as the launcher says it, for the
  // line that is printed where not all processes come within `limit` (exit code 3).
  void begin(int rank, std::chrono::milliseconds limit);
  bool begun() const { return begun_; }
  // Of a program that has initialised MPI: the names of the others' hosts aren't known.
  void attach();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  // Gives `own` to rank 0, which makes of what all have given, by rank, one answer for all.
  // Collective. Where a process doesn't come within `limit`, rank 0 names it and the job ends with
  // exit code 3; `what` says what it was waited for.
  std::string agree(const std::string& own,
                    const std::function<std::string(const std::vector<std::string>&)>& answer,
                    const std::string& what, std::chrono::milliseconds limit) const;

  // Prints one line and ends the job.
  [[noreturn]] void abort(const std::string& line, int exit_code) const noexcept;
  // Ends MPI: the last call. Where that takes longer than some seconds, because others have ended
  // without it, the process ends with `exit_code`.
  void finish(int exit_code);

 private:
  [[noreturn]] void give_up(const std::string& what, const std::string& missing,
                            std::chrono::milliseconds limit) const;

  bool begun_ = false, owner_ = false;
  int rank_ = 0;
  std::vector<std::string> hosts_;  // by rank
};

}  // namespace trident
