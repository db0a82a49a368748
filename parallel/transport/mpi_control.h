// The control messages of an MPI job, which are separate from its data messages: the ranks report
// that they live, that they have ended, and why all have to end. A thread of each rank sends a
// heartbeat to its two neighbours in the ring of ranks. It ends the job when a neighbour has been
// silent for the timeout. However a network breaks into two halves, the ring crosses the break.
// Both halves therefore end by themselves, even where mpirun can't reach one of them.
//
// Any thread may call it; close() is the last call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/countdown.h"
#include "parallel/transport/file_work.h"
#include "parallel/transport/mpi_library.h"
#include "parallel/transport/wait_table.h"

namespace trident {

class MpiControl {
 public:
  // Takes ownership of the communicator, which has all ranks. `hosts` holds host names by rank.
  // Collective.
  MpiControl(MPI_Comm communicator, std::vector<std::string> hosts,
             std::chrono::milliseconds timeout);
  MpiControl(const MpiControl&) = delete;
  MpiControl& operator=(const MpiControl&) = delete;
  // close() must have been called.
  ~MpiControl() = default;

  // Whether the peer has said farewell, that is, has ended in order. A rank that was killed never
  // does; its neighbour finds it by its silence.
  bool ended(int peer);
  // Between these two calls the thread drives MPI, which makes no progress outside its own calls.
  void watch();
  void unwatch() { watched_.fetch_sub(1); }
  // The waits of this rank. waits_of() asks other ranks for theirs, and takes a second at most for
  // each.
  WaitTable& waits() { return waits_; }
  FileTimes& file_times() { return file_times_; }
  // Whether any rank reports that it works on files, or did until recently. Takes a second at most.
  bool files_hold_up();
  std::string waits_of(int rank);

  // Ends all ranks. The first rank that fails prints its reason as one line.
  [[noreturn]] void end_job(const std::string& reason, int exit_code) noexcept;
  // Reports to the others that this rank has ended, and waits for all to end, as long as they live.
  void close();

 private:
  struct Neighbour {
    int rank;
    Countdown silence;  // after it the neighbour counts as dead
    MPI_Request beat = MPI_REQUEST_NULL;
  };
  void run();
  void beat();
  void listen();
  void read();
  void send_question(int rank);
  int own_answer() const;
  bool has_come(int rank, int& answer);
  int ask(int rank);
  [[noreturn]] void end_quietly(int exit_code) noexcept;
  std::string place(int rank) const;

  MPI_Comm communicator_;
  std::vector<std::string> hosts_;
  int rank_ = 0, size_ = 0;
  std::chrono::milliseconds silence_, period_;
  std::vector<Neighbour> neighbours_;

  std::mutex reading_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<int> aborted_by_, abort_code_{0};  // the lowest rank that has reported an error
  std::atomic_flag ending_ = ATOMIC_FLAG_INIT;
  WaitTable waits_;
  FileTimes file_times_;
  std::chrono::milliseconds timeout_;
  // The questions to and from another rank: this rank's answer on its way to it, and its last
  // answer.
  struct Asked {
    int given = 0, got = no_rank;
    MPI_Request on_its_way = MPI_REQUEST_NULL;
    bool has_come = false;
  };
  std::vector<Asked> asked_;  // guarded by reading_
  std::mutex asking_;         // one thread asks at a time

  std::atomic<int> watched_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trident
