#include "base/process/background.h"

#include <system_error>
#include <utility>

namespace trident {

BackgroundTasks::~BackgroundTasks() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool BackgroundTasks::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= capacity_) return false;
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
      waiting_.push_back(std::move(task));
      task = nullptr;
    } catch (const std::system_error&) {
      // The system can't start a thread: the task runs in this thread below.
    }
  }
  if (task) task();
  changed_.notify_all();
  return true;
}

void BackgroundTasks::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !busy_; });
}

void BackgroundTasks::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    task = nullptr;  // destroys its captures before drain() returns
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace trident
