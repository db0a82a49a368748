#include "core/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/file.h"

namespace trident {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  std::vector<char*> list;
  for (const std::string& one : arguments) list.push_back(const_cast<char*>(one.c_str()));
  list.push_back(nullptr);
  int ends[2];  // what execvp says, where it returns
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_file_error(arguments[0], "pipe", errno);
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw_file_error(arguments[0], "fork", errno);
  if (pid_ == 0) {  // only what a signal handler may call
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(list[0], list.data());
    const int code = errno;
    [[maybe_unused]] const ssize_t told = ::write(ends[1], &code, sizeof code);
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // whoever comes first
  write_end = FileDescriptor();
  int code = 0;
  ssize_t told = 0;
  do {
    told = ::read(read_end.get(), &code, sizeof code);
  } while (told < 0 && errno == EINTR);
  if (told == static_cast<ssize_t>(sizeof code)) {
    ::waitpid(pid_, nullptr, 0);
    throw RequestError(fmt::format("{}: can't be started: {}", arguments[0],
                                   std::system_category().message(code)));
  }
}

ChildProcess::~ChildProcess() {
  if (end_) return;
  signal_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<ChildProcess::End> ChildProcess::wait(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (!end_) {
    int status = 0;
    const pid_t found = ::waitpid(pid_, &status, WNOHANG);
    if (found < 0 && errno != EINTR) throw Error(fmt::format("waitpid({}): lost", pid_));
    if (found == pid_) {
      const bool killed = WIFSIGNALED(status);
      end_ =
          End{killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status), killed ? WTERMSIG(status) : 0};
    } else if (std::chrono::steady_clock::now() >= until) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return end_;
}

void ChildProcess::signal(int number) {
  if (!end_) ::kill(pid_, number);
}

void ChildProcess::signal_group(int number) {
  if (!end_) ::kill(-pid_, number);
}

}  // namespace trident
