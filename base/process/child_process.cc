#include "base/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/files/file.h"

namespace trident {
namespace {

// The parent of each living process.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> parent_of;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    // "pid (name) state parent": the name may contain any character.
    std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
    std::string state;
    pid_t parent = 0;
    if (rest >> state >> parent && state != "Z") parent_of[std::stoi(name)] = parent;
  }
  return parent_of;
}

// The process ids of this process's children.
std::vector<pid_t> children() {
  std::vector<pid_t> list;
  for (const auto& [pid, parent] : parents()) {
    if (parent == ::getpid()) list.push_back(pid);
  }
  return list;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> list;
  for (const std::string& one : arguments) list.push_back(const_cast<char*>(one.c_str()));
  list.push_back(nullptr);
  int ends[2];  // the errno of execvp, if it fails
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_file_error(arguments[0], "pipe", errno);
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw_file_error(arguments[0], "fork", errno);
  if (pid_ == 0) {  // only async-signal-safe calls
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
    ::signal(SIGTTOU, SIG_IGN);  // `stty tostop` would stop it at its first output
    if (nothing.get() >= 0) ::dup2(nothing.get(), STDIN_FILENO);
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    ::execvp(list[0], list.data());
    const int code = errno;
    [[maybe_unused]] const ssize_t written = ::write(ends[1], &code, sizeof code);
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // parent and child both set it; either may be first
  write_end = FileDescriptor();
  int code = 0;
  ssize_t received = 0;
  do {
    received = ::read(read_end.get(), &code, sizeof code);
  } while (received < 0 && errno == EINTR);
  if (received == static_cast<ssize_t>(sizeof code)) {
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
    if (found < 0 && errno != EINTR) throw Error(fmt::format("waitpid({}): child is lost", pid_));
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

int running_below(const std::string& program) {
  const std::map<pid_t, pid_t> parent_of = parents();
  int count = 0;
  for (const auto& [pid, parent] : parent_of) {
    pid_t above = parent;
    // If an ancestor has ended meanwhile, it has no parent in this list.
    for (int i = 0; above != ::getpid() && i < 64; ++i) {
      const auto next = parent_of.find(above);
      if (next == parent_of.end()) break;
      above = next->second;
    }
    if (above != ::getpid()) continue;
    std::error_code ignored;
    const std::filesystem::path file =
        std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), ignored);
    if (file.string() == program || file.string() == program + " (deleted)") ++count;
  }
  return count;
}

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int end_orphans(int asking, const std::function<bool()>& patience) {
  constexpr std::chrono::milliseconds kMoment(300);  // for children that are ending by themselves
  const auto begin = std::chrono::steady_clock::now();
  std::set<pid_t> asked;
  for (;;) {
    pid_t gone = 0;
    while ((gone = ::waitpid(-1, nullptr, WNOHANG)) > 0) continue;
    if (gone < 0 && errno == ECHILD) return static_cast<int>(asked.size());
    if (std::chrono::steady_clock::now() - begin > kMoment) {
      const bool over = !patience();
      for (const pid_t pid : children()) {
        const bool is_new = asked.insert(pid).second;
        if (over || is_new) ::kill(pid, over ? SIGKILL : asking);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace trident
