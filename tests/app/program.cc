#include "tests/app/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tests/support/full_disk.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

[[noreturn]] void become_program(const std::vector<std::string>& arguments,
                                 const ProgramOptions& options, const std::string& out,
                                 const std::string& err) {
  std::vector<char*> argv;
  for (const std::string& word : options.launcher) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(const_cast<char*>(TRIDENT_PROGRAM));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  for (const int stream : options.closed) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(126);
    ::close(ends[0]);
    ::dup2(ends[1], stream);
  }
  // A shell starts programs with these handlers; the tests' own starter may have changed them.
  for (const int s : {SIGINT, SIGHUP, SIGPIPE}) std::signal(s, SIG_DFL);
  if (::chdir(options.directory.c_str()) != 0) ::_exit(126);
  if (options.max_file_bytes > 0) {
    static_cast<void>(new FullDisk(static_cast<rlim_t>(options.max_file_bytes)));  // survives exec
  }
  // LeakSanitizer doesn't work under strace, and it reports memory that MPI's library never frees.
  if (!options.launcher.empty() || std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  }
  ::execvp(argv.front(), argv.data());
  ::_exit(127);
}

}  // namespace

Outcome run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  const TempDir streams;
  const std::string out = options.out.empty() ? streams / "out" : options.out;
  const std::string err = streams / "err";
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become_program(arguments, options, out, err);

  int status = 0;
  // The tests that only scripts/test --full runs search several complete presets at the same time.
  const bool full = std::getenv("TRIDENT_TEST_FULL") != nullptr;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(full ? 3000 : 300);
  bool signalled = !options.until;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (!signalled && options.until()) {
      if (options.signal != 0) ::kill(child, options.signal);
      signalled = true;
    }
    if (std::chrono::steady_clock::now() > deadline) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(out), slurp(err)};
}

std::vector<std::string> train_arguments(const std::vector<std::string>& set) {
  std::vector<std::string> arguments{"train", "c.json"};
  for (const std::string& one : set) arguments.insert(arguments.end(), {"--set", one});
  return arguments;
}

std::string small_text() {
  std::string text;
  while (text.size() < 6000) text += "In the beginning was the word, and the word was good. ";
  return text;
}

}  // namespace trident::testing
