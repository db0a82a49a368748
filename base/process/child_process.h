// A program that this one starts, watches and ends.
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
  // Starts arguments[0] (looked for in PATH), with nothing to read, in a process group of its own,
  // so that a terminal's Ctrl-C goes to this program alone. Should this program die, the child gets
  // SIGTERM. Start it on a thread that lives as long: the kernel takes the thread's end for it.
  // `output`: a file descriptor in place of its standard output. RequestError where there is no
  // such program.
  explicit ChildProcess(const std::vector<std::string>& arguments, int output = -1);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();  // ends its group (SIGKILL) where it still runs

  struct End {
    int code = 0;    // exit code, or 128 + signal
    int signal = 0;  // that ended it; 0: none
  };
  // Waits for its end, at most so long.
  std::optional<End> wait(std::chrono::milliseconds most);
  void signal(int number);        // to it alone
  void signal_group(int number);  // and to all that it has started in its group

 private:
  pid_t pid_ = -1;
  std::optional<End> end_;
};

// How many living processes below this one run `program`, the path of a file.
int running_below(const std::string& program);
// From here on what children leave behind when they end becomes this program's.
void adopt_orphans();
// Ends all children of this program, and what these leave behind: waits a moment, then sends each
// `asking`, and SIGKILL once `patience` says that it is over. How many were asked.
int end_orphans(int asking, const std::function<bool()>& patience);

}  // namespace trident
