// Runs tasks one after the other on a separate thread. The thread that posts a task never waits for
// the resources that the task waits for, such as a slow disk or a stopped terminal.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trident {

class BackgroundTasks {
 public:
  // At most `capacity` tasks may wait at a time.
  explicit BackgroundTasks(std::size_t capacity) : capacity_(capacity) {}
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;
  ~BackgroundTasks();  // runs the waiting tasks first

  // Queues a task without waiting for any task. If the system can't start a thread, runs this task
  // in the calling thread. Returns false, and drops the task, if too many tasks wait. A task must
  // not throw.
  bool post(std::function<void()> task);
  // Waits until all tasks that were posted before have run.
  void drain();

 private:
  void run();

  std::size_t capacity_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;  // started by the first task
};

}  // namespace trident
