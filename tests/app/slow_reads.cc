// A library for LD_PRELOAD that simulates a slow disk for one file. A read of at most 100 bytes,
// such as a sample's tokens, takes SLOW_SECONDS if the path ends in SLOW_FILE, whichever thread
// reads first. strace would slow the reads of every thread.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::atomic<bool> read_before = false;

bool is_slow(int file, std::size_t size) {
  const char* const name = std::getenv("SLOW_FILE");
  char path[4096];
  if (name == nullptr || size > 100) return false;
  const auto length =
      readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return length > 0 && std::string_view(path, static_cast<std::size_t>(length)).ends_with(name);
}

ssize_t read_slowly(const char* name, int file, void* to, std::size_t size, off_t offset) {
  using Call = ssize_t (*)(int, void*, std::size_t, off_t);
  if (is_slow(file, size) && !read_before.exchange(true)) {
    sleep(static_cast<unsigned>(std::atoi(std::getenv("SLOW_SECONDS"))));
  }
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name))(file, to, size, offset);
}

}  // namespace

extern "C" ssize_t pread(int file, void* to, std::size_t size, off_t offset) {
  return read_slowly("pread", file, to, size, offset);
}
extern "C" ssize_t pread64(int file, void* to, std::size_t size, off_t offset) {
  return read_slowly("pread64", file, to, size, offset);
}
