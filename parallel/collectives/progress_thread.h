// A thread that carries out a group's asynchronous collectives, one after the other. Any thread may
// push tasks and wait for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace trident {

class ProgressThread {
 public:
  // A queued function and its completion. The objects that `run` holds are released before the task
  // is done.
  class Task {
   public:
    bool done() const;
    void wait() const;  // rethrows the function's exception

   private:
    friend class ProgressThread;
    void finish(std::exception_ptr error);
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool done_ = false;
    std::exception_ptr error_;
  };

  ProgressThread();
  ~ProgressThread();  // finishes the queued tasks
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  void push(std::shared_ptr<Task> task, std::function<void()> run);
  bool idle() const;

 private:
  struct Entry {
    std::shared_ptr<Task> task;
    std::function<void()> run;
  };
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trident
