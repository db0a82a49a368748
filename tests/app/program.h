// Runs the built program as its users do: arguments in; exit code, stdout and stderr out.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace trident::testing {

struct Outcome {
  int code = -1;  // exit code; 128 + signal where one ended it
  std::string out, err;
};

struct ProgramOptions {
  std::string directory;    // working directory
  long max_file_bytes = 0;  // no file can grow beyond it (a full disk); 0: no limit
  // What starts the program, its path first: mpirun, strace. It is found in PATH.
  std::vector<std::string> launcher = {};
  std::vector<int> closed = {};  // streams (1, 2) whose reader has gone
  // Called again and again while the program runs; true ends that, after which `signal` is sent.
  std::function<bool()> until = {};
  int signal = 0;
  std::string out = {};  // the file that its output goes to; else one of its own
};

Outcome run_program(const std::vector<std::string>& arguments, const ProgramOptions& options);

// `train c.json` with these overrides.
std::vector<std::string> train_arguments(const std::vector<std::string>& set);
// 6000 characters to train on.
std::string small_text();

}  // namespace trident::testing
