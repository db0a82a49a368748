#include "parallel/queued_work.h"

#include <exception>
#include <utility>

namespace trident {

struct QueuedWork::State final : Pending {
  bool done() const override { return task->done() && finished->reached(); }
  void finish() noexcept override {
    try {
      task->wait();
      finished->synchronize();
    } catch (...) {
      // The error ends all ranks.
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
  try {
    if (*claim_ == Claim::waited || state_->done()) return;
  } catch (const std::exception&) {
    // The device has failed, and its next use reports that.
  }
  *claim_ = Claim::dropped;
  context_.keep(state_);
}

void QueuedWork::wait(const Access& access) {
  *claim_ = Claim::waited;
  state_->task->wait();
  state_->finished->wait(access);
}

bool QueuedWork::done() const {
  return state_->done();
}

std::shared_ptr<DeviceEvent> QueuedWork::finished() const {
  return state_->finished;
}

std::shared_ptr<QueuedWork> run_async(Context& context, ProgressThread& thread, Stream& queue,
                                      std::function<void(const Access&)> run,
                                      std::shared_ptr<std::atomic<Claim>> claim) {
  auto work = std::make_shared<QueuedWork>(context, std::move(run));
  work->claim_ = std::move(claim);
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
