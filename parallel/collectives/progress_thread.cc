#include "parallel/collectives/progress_thread.h"

#include <utility>

namespace trident {

bool ProgressThread::Task::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void ProgressThread::Task::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

void ProgressThread::Task::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

ProgressThread::ProgressThread() : thread_([this] { loop(); }) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ProgressThread::push(std::shared_ptr<Task> task, std::function<void()> run) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(task), std::move(run)});
  }
  wake_.notify_one();
}

bool ProgressThread::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void ProgressThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      entry.run();
    } catch (...) {
      error = std::current_exception();
    }
    entry.run = nullptr;
    lock.lock();
    busy_ = false;
    lock.unlock();
    entry.task->finish(std::move(error));
    entry.task.reset();
    lock.lock();
  }
}

}  // namespace trident
