// For the thread sanitizer, which does not understand libgomp: plain threads, and one oneDNN thread
// per rank.
#include <omp.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/thread_team.h"

namespace trident {

struct ThreadTeam::Impl {
  std::mutex mutex;
  std::condition_variable start, done;
  const std::function<void(int)>* task = nullptr;
  int tasks = 0;
  int running = 0;
  std::uint64_t round = 0;
  bool stop = false;
  std::vector<std::thread> workers;

  void work(int index, int threads) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      const auto* current = task;
      const int count = tasks;
      lock.unlock();
      for (int i = index; i < count; i += threads) (*current)(i);
      lock.lock();
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadTeam::ThreadTeam(int threads) : threads_(std::max(1, threads)) {
  impl_ = std::make_unique<Impl>();
  for (int i = 1; i < threads_; ++i) {
    impl_->workers.emplace_back([impl = impl_.get(), i, n = threads_] { impl->work(i, n); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->start.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

void ThreadTeam::run(int tasks, const std::function<void(int)>& task) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->task = &task;
    impl_->tasks = tasks;
    impl_->running = threads_ - 1;
    ++impl_->round;
  }
  impl_->start.notify_all();
  for (int i = 0; i < tasks; i += threads_) task(i);
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [this] { return impl_->running == 0; });
}

void ThreadTeam::prepare_library() const {
  omp_set_num_threads(1);
  omp_set_dynamic(0);  // the number must not depend on the load or on OMP_DYNAMIC
}

}  // namespace trident
