// OpenMP keeps one team for each master thread. oneDNN uses the same team.
#include <omp.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "core/core_contention.h"
#include "core/thread_team.h"
#include "core/threads.h"

namespace trident {
namespace {

// While it lives, the process has more threads in teams than cores. In libgomp, a thread that waits
// for others of its team keeps its core for milliseconds, but gives it up soon if there are more
// threads than cores (see GOMP_SPINCOUNT in its manual, do_spin() in its wait.h). The threads of
// this extra team sleep.
class ExtraTeam {
 public:
  // `threads`: the size of the rank's team.
  explicit ExtraTeam(int threads) {
    const int size = std::max(2, omp_get_num_procs() - threads + 2);
    need_threads(size, "teams of threads");  // libgomp ends the process if it gets no thread
    leader_ = std::thread([this, size] {
      omp_set_dynamic(0);
#pragma omp parallel num_threads(size)
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return over_; });
      }
    });
  }
  ~ExtraTeam() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    leader_.join();
  }
  ExtraTeam(const ExtraTeam&) = delete;
  ExtraTeam& operator=(const ExtraTeam&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread leader_;
};

}  // namespace

struct ThreadTeam::Impl {
  explicit Impl(int n) : threads(n), contention(n) {}

  void conclude() {
    contention.conclude();
    if (!contention.found()) {
      extra.reset();
    } else if (extra == nullptr && !refused) {
      try {
        extra = std::make_unique<ExtraTeam>(threads);
      } catch (const RequestError&) {
        refused = true;
      } catch (const std::system_error&) {
        refused = true;
      }
    }
  }

  int threads;
  CoreContention contention;
  std::unique_ptr<ExtraTeam> extra;  // exists while other processes want the cores
  bool refused = false;
};

ThreadTeam::ThreadTeam(int threads) : threads_(std::max(1, threads)) {
  if (threads_ > 1) impl_ = std::make_unique<Impl>(threads_);
}
ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::run(int tasks, const std::function<void(int)>& task) {
  const int used = std::min(tasks, threads_);
  const bool looks = used > 1 && impl_->contention.due();
#pragma omp parallel num_threads(used)
  {
    const int own = omp_get_thread_num();
    if (looks) impl_->contention.look(own);
    const int step = omp_get_num_threads();  // may be fewer than requested
    for (int i = own; i < tasks; i += step) task(i);
  }
  if (looks) impl_->conclude();
}

void ThreadTeam::prepare_library() const {
  omp_set_num_threads(threads_);
  omp_set_dynamic(0);  // the number must not depend on the load or on OMP_DYNAMIC
}

}  // namespace trident
