// Operations on tensors of a GPU that go on beside the context's queue: a thread gives them to a
// queue of their own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/context.h"
#include "parallel/process_group_impl.h"

namespace trident {

// Whether a Work has been waited for, or dropped: an operation that nobody claims may end early.
enum class Claim { none, waited, dropped };

class QueuedWork final : public Work::Impl {
 public:
  QueuedWork(Context& context, std::function<void(const Access&)> run);
  ~QueuedWork() override;  // what is not waited for is kept by the context until it has run
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

// In `queue`, from where the context's queue is now. `thread` takes its work in order; `run` puts
// the operation into the queue, and what it holds stays until the operation has run. `fate` tells
// it what becomes of the Work.
std::shared_ptr<QueuedWork> run_async(
    Context& context, ProgressThread& thread, Stream& queue, std::function<void(const Access&)> run,
    std::shared_ptr<std::atomic<Claim>> claim = std::make_shared<std::atomic<Claim>>(Claim::none));

}  // namespace trident
