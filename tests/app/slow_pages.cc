// Loaded before a program (LD_PRELOAD), makes one file that it maps come from a slow disk: the
// first touch of a page takes SLOW_SECONDS where the mapped file's path ends in SLOW_FILE. strace
// can't slow a page fault, which is no call.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

char *first = nullptr, *last = nullptr;
std::atomic<bool> touched = false;

void take_fault(int, siginfo_t* info, void*) {
  const char* const at = static_cast<char*>(info->si_addr);
  if (at < first || at >= last) {
    signal(SIGSEGV, SIG_DFL);  // the program's own, which comes again
    return;
  }
  if (!touched.exchange(true)) sleep(static_cast<unsigned>(std::atoi(std::getenv("SLOW_SECONDS"))));
  mprotect(first, static_cast<std::size_t>(last - first), PROT_READ);
}

bool is_slow(int file) {
  const char* const name = std::getenv("SLOW_FILE");
  char path[4096];
  if (name == nullptr || file < 0) return false;
  const auto size = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return size > 0 && std::string_view(path, static_cast<std::size_t>(size)).ends_with(name);
}

}  // namespace

extern "C" void* mmap(void* at, std::size_t size, int protection, int flags, int file,
                      off_t offset) noexcept {
  using Call = void* (*)(void*, std::size_t, int, int, int, off_t);
  static const auto call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "mmap"));
  if (protection != PROT_READ || flags != MAP_SHARED || !is_slow(file)) {
    return call(at, size, protection, flags, file, offset);
  }
  first = static_cast<char*>(call(at, size, PROT_NONE, flags, file, offset));
  last = first + size;
  struct sigaction action {};
  action.sa_sigaction = take_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  return first;
}
