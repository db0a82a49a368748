#include "parallel/queued_work.h"

#include <utility>

namespace trident {

struct QueuedWork::State final : Pending {
  bool done() const override { return task->done() && finished->reached(); }
  void finish() noexcept override {
    try {
      task->wait();
      finished->synchronize();
    } catch (...) {
      // All ranks end.
    }
  }

  std::function<void(const Access&)> run;
  std::shared_ptr<ProgressThread::Task> task = std::make_shared<ProgressThread::Task>();
  std::shared_ptr<DeviceEvent> begun, finished;
};

QueuedWork::QueuedWork(Context& context, std::function<void(const Access&)> run)
    : context_(context), state_(std::make_shared<State>()) {
  state_->run = std::move(run);
  state_->begun = context.device().make_event();
  state_->finished = context.device().make_event();
}

QueuedWork::~QueuedWork() {
  if (waited_ || state_->done()) return;
  if (dropped_ != nullptr) dropped_->store(true);
  context_.keep(state_);
}

void QueuedWork::wait(const Access& access) {
  state_->task->wait();
  state_->finished->wait(access);
  waited_ = true;
}

bool QueuedWork::done() const {
  return state_->done();
}

std::shared_ptr<DeviceEvent> QueuedWork::finished() const {
  return state_->finished;
}

std::shared_ptr<QueuedWork> run_beside(Context& context, ProgressThread& thread, Stream& queue,
                                       std::function<void(const Access&)> run,
                                       std::shared_ptr<std::atomic<bool>> dropped) {
  auto work = std::make_shared<QueuedWork>(context, std::move(run));
  work->dropped_ = std::move(dropped);
  const auto state = work->state_;
  context.stream().enqueue([&](const Access& access) { state->begun->record(access); });
  thread.push(state->task, [&queue, state] {
    queue.enqueue([&](const Access& access) {
      state->begun->wait(access);
      state->run(access);
      state->finished->record(access);
    });
  });
  return work;
}

}  // namespace trident
