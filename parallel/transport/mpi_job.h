// The processes of an MPI job before they have a transport, and after. Every wait has a limit. A
// process that does not arrive is named once, and the job ends.
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

  // Initialises MPI and finds the processes of the job. Collective. `rank` and `ranks` are the
  // launcher's values (0: unknown). `rank` is named in the line that is printed where not all
  // processes arrive within `limit` (exit code 3). `ranks` serves to detect that the launcher of
  // another MPI has started them (exit code 2).
  virtual void begin(int rank, int ranks, std::chrono::milliseconds limit) = 0;
  // For a program that has initialised MPI itself. The names of the others' hosts aren't known
  // then.
  virtual void attach() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host(int rank) const = 0;

  // Sends `own` to rank 0, which makes one answer for all from the values of all ranks, and returns
  // that answer on every rank. Collective. Where a process does not arrive within `limit`, rank 0
  // names it and the job ends with exit code 3; `what` gives the purpose of the wait.
  virtual std::string agree(
      const std::string& own,
      const std::function<std::string(const std::vector<std::string>&)>& answer,
      const std::string& what, std::chrono::milliseconds limit) const = 0;

  // Prints one line and ends the job.
  [[noreturn]] virtual void abort(const std::string& line, int exit_code) const noexcept = 0;
  // Ends MPI; this is the last call. Where that takes longer than some seconds, because others have
  // ended without it, the process ends with `exit_code`.
  virtual void finish(int exit_code) = 0;
};

// Throws RequestError where MPI can't be loaded (parallel/transport/mpi_parts.h).
std::unique_ptr<MpiJob> make_mpi_job();

}  // namespace trident
