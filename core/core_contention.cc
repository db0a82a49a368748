#include "core/core_contention.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace trident {
namespace {

constexpr std::chrono::milliseconds interval{20};  // several time slices of a scheduler
constexpr int busy_intervals = 3, calm_intervals = 10;

}  // namespace

std::optional<std::chrono::nanoseconds> time_without_core() {
  // "<ns on a core> <ns in a queue for one> <times>"
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char text[128];
  const auto size = ::read(file, text, sizeof text);
  ::close(file);
  const std::string_view fields(text, static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  const std::size_t second = fields.find(' ');
  if (second == std::string_view::npos) return std::nullopt;
  std::int64_t waited = 0;
  const char* const end = fields.data() + fields.size();
  if (std::from_chars(fields.data() + second + 1, end, waited).ec != std::errc()) {
    return std::nullopt;
  }
  return std::chrono::nanoseconds(waited);
}

void ContentionDetector::add(std::chrono::nanoseconds length, std::chrono::nanoseconds lost) {
  const bool other = found_ ? lost < length / 50 : lost > length / 10;
  in_a_row_ = other ? in_a_row_ + 1 : 0;
  if (in_a_row_ < (found_ ? calm_intervals : busy_intervals)) return;
  found_ = !found_;
  in_a_row_ = 0;
}

void CoreContention::look(int thread) {
  Watched& own = watched_[static_cast<std::size_t>(thread)];
  const std::chrono::nanoseconds now = time_without_core().value_or(std::chrono::nanoseconds(0));
  const long id = ::syscall(SYS_gettid);
  own.lost = id == own.id ? now - own.before : std::chrono::nanoseconds(0);
  own.id = id;
  own.before = now;
}

bool CoreContention::wanted() {
  if (due()) {
    look(0);
    conclude();
  }
  return found();
}

void CoreContention::conclude() {
  std::chrono::nanoseconds most(0);
  for (Watched& one : watched_)
    most = std::max(most, std::exchange(one.lost, std::chrono::nanoseconds(0)));
  const auto now = Clock::now();
  rule_.add(now - last_, most);
  last_ = now;
  next_ = now + interval;
}

}  // namespace trident
