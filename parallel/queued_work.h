// Asynchronous operations on GPU tensors. A thread enqueues them in a queue of their own, so that
// they run concurrently with the context's queue.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/context.h"
#include "parallel/process_group_impl.h"

namespace trident {

// Whether a Work has been waited for or dropped. An operation whose Work was dropped may end early.
enum class Claim { none, waited, dropped };

class QueuedWork final : public Work::Impl {
 public:
  QueuedWork(Context& context, std::function<void(const Access&)> run);
  // Without a wait, the context keeps the operation until it has run.
  ~QueuedWork() override;
  void wait(const Access&) override;
  bool done() const override;
  std::shared_ptr<DeviceEvent> finished() const;

 private:
  friend std::shared_ptr<QueuedWork> run_async(Context&, ProgressThread&, Stream&,
                                               std::function<void(const Access&)>,
                                               std::shared_ptr<std::atomic<Claim>>);
  struct State;
  Context& context_;
  std::shared_ptr<State> state_;
  std::shared_ptr<std::atomic<Claim>> claim_;
};

// Runs an operation in `queue`, after the work that is in the context's queue now. `thread` takes
// its work in order. `run` puts the operation into the queue; the objects that `run` holds stay
// until the operation has run. `claim` reports to `run` whether the Work is waited for or dropped.
std::shared_ptr<QueuedWork> run_async(
    Context& context, ProgressThread& thread, Stream& queue, std::function<void(const Access&)> run,
    std::shared_ptr<std::atomic<Claim>> claim = std::make_shared<std::atomic<Claim>>(Claim::none));

}  // namespace trident
