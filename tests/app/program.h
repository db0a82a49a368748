// Runs the built program as its users do: with arguments, and returns its exit code, stdout and
// stderr.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace trident::testing {

struct Outcome {
  int code = -1;  // exit code; 128 + signal if a signal ended it
  std::string out, err;
};

struct ProgramOptions {
  std::string directory;    // working directory
  long max_file_bytes = 0;  // size limit of each file, as on a full disk; 0: no limit
  // The program that starts it, such as mpirun or strace, with its arguments. It is found in PATH.
  std::vector<std::string> launcher = {};
  std::vector<int> closed = {};  // streams (1, 2) whose reader is closed
  // Called repeatedly while the program runs. When it returns true, `signal` is sent and the calls
  // end.
  std::function<bool()> until = {};
  int signal = 0;
  std::string out = {};  // the file for its output; empty: a temporary file
};

Outcome run_program(const std::vector<std::string>& arguments, const ProgramOptions& options);

// The arguments `train c.json` with these overrides.
std::vector<std::string> train_arguments(const std::vector<std::string>& set);
// A training text of 6000 characters.
std::string small_text();

}  // namespace trident::testing
