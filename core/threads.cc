#include "core/threads.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace trident {

void need_threads(std::int64_t wanted, const std::string& who) {
  std::mutex mutex;
  std::condition_variable wake;
  bool over = false;
  std::vector<std::thread> threads;
  bool refused = false;
  try {
    while (static_cast<std::int64_t>(threads.size()) < wanted) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return over; });
      });
    }
  } catch (const std::system_error&) {
    refused = true;
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  wake.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (!refused) return;
  throw RequestError(who + " need " + std::to_string(wanted) + " threads; the system allows only " +
                     std::to_string(threads.size()) + " more here: " + thread_limit_text());
}

std::string thread_limit_text() {
  return "raise the limit of processes (ulimit -u; of a container or service, pids.max of its "
         "cgroup) or of the stack's size (ulimit -s), or take fewer ranks or threads per rank";
}

void want_cores(int count) {
  cpu_set_t own, wider;
  if (::sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) >= count) return;
  if (::sched_getaffinity(::getppid(), sizeof wider, &wider) != 0) return;
  CPU_OR(&wider, &wider, &own);
  ::sched_setaffinity(0, sizeof wider, &wider);
}

void lower_priority(int niceness, IoPriority io) {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  const int now = ::getpriority(PRIO_PROCESS, thread);
  ::setpriority(PRIO_PROCESS, thread, std::min(19, now + niceness));
  if (io == IoPriority::usual) return;
  // ioprio_set(2): IOPRIO_WHO_PROCESS, this thread; the class and, for best effort, the level.
  constexpr int who_process = 1, best_effort = 2, idle = 3, class_shift = 13, lowest = 7;
  const int value =
      io == IoPriority::idle ? idle << class_shift : best_effort << class_shift | lowest;
  ::syscall(SYS_ioprio_set, who_process, 0, value);
}

}  // namespace trident
