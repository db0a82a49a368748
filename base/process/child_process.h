// A program that this process starts, watches and ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trident {

class ChildProcess {
 public:
  // Starts arguments[0] (searched in PATH) with an empty standard input, in a process group of its
  // own, so that a terminal's Ctrl-C reaches only this process. If this process dies, the child
  // gets SIGTERM. Create the object on a thread that lives as long: the kernel also sends SIGTERM
  // when that thread ends. `output`: a file descriptor that replaces the child's standard output.
  // Throws RequestError if the program can't be started.
  explicit ChildProcess(const std::vector<std::string>& arguments, int output = -1);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();  // kills its process group (SIGKILL) if it still runs

  struct End {
    int code = 0;    // exit code, or 128 + signal
    int signal = 0;  // the signal that ended it; 0: none
  };
  // Waits for the child's end, for at most `most`. Returns nothing if the child still runs.
  std::optional<End> wait(std::chrono::milliseconds most);
  void signal(int number);        // to the child alone
  void signal_group(int number);  // to the child and the programs that it started in its group

 private:
  pid_t pid_ = -1;
  std::optional<End> end_;
};

// The number of living descendants of this process that run `program`, the path of a file.
int running_below(const std::string& program);
// From now on, orphaned descendants become children of this process.
void adopt_orphans();
// Ends all children of this process, and the orphans that they leave. Waits for a moment, then
// sends each of them `asking`, and SIGKILL once `patience` returns false. Returns the number of
// processes that got a signal.
int end_orphans(int asking, const std::function<bool()>& patience);

}  // namespace trident
