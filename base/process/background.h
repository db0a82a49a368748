// Tasks for a thread of their own, one after the other: who hands them over never waits for what
// they wait for, such as a slow disk or a terminal that has been stopped.
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
  // At most `capacity` tasks wait at a time.
  explicit BackgroundTasks(std::size_t capacity) : capacity_(capacity) {}
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;
  ~BackgroundTasks();  // after the tasks that wait

  // Never waits for a task (but runs this one itself where the system gives no thread). A task must
  // not throw. False where too many wait: the task is dropped.
  bool post(std::function<void()> task);
  // Waits until every task has run that was posted before.
  void drain();

 private:
  void run();

  std::size_t capacity_;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;  // started by the first task
};

}  // namespace trident
