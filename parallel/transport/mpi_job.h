// The processes of an MPI job before they have a transport, and after. Every wait has a limit; who
// doesn't come is named, once, and ends the job.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trident {

class MpiJob {
 public:
  MpiJob() = default;
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  virtual ~MpiJob() = default;

  // Initialises MPI and finds out who is there. Collective. `rank` and `ranks` as the launcher says
  // them (0: unknown): `rank` for the line that is printed where not all processes come within
  // `limit` (exit code 3), `ranks` to find out that another MPI's launcher has started them (2).
  virtual void begin(int rank, int ranks, std::chrono::milliseconds limit) = 0;
  // Of a program that has initialised MPI: the names of the others' hosts aren't known.
  virtual void attach() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host(int rank) const = 0;

  // Gives `own` to rank 0, which makes of what all have given, by rank, one answer for all.
  // Collective. Where a process doesn't come within `limit`, rank 0 names it and the job ends with
  // exit code 3; `what` says what it was waited for.
  virtual std::string agree(
      const std::string& own,
      const std::function<std::string(const std::vector<std::string>&)>& answer,
      const std::string& what, std::chrono::milliseconds limit) const = 0;

  // Prints one line and ends the job.
  [[noreturn]] virtual void abort(const std::string& line, int exit_code) const noexcept = 0;
  // Ends MPI: the last call. Where that takes longer than some seconds, because others have ended
  // without it, the process ends with `exit_code`.
  virtual void finish(int exit_code) = 0;
};

// Throws RequestError where MPI isn't there (mpi_parts.h).
std::unique_ptr<MpiJob> make_mpi_job();

}  // namespace trident
