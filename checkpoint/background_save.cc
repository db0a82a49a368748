#include "checkpoint/background_save.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"

namespace trident {

std::int64_t staged_bytes(const State& state, DType weights, const CheckpointConfig& config) {
  const std::int64_t bytes =
      largest_part(state, weights, static_cast<std::uint64_t>(config.min_slice),
                   [](const StateTensor& tensor, const Share& share) {
                     return (tensor.tensor.bytes() + share.parts - 1) / share.parts;
                   });
  return std::min(bytes, config.staging_limit);
}

Staging::~Staging() {
  count(-bytes_);
}

void Staging::count(std::int64_t bytes) {
  bytes_ += bytes;
  if (ledger_ == nullptr) return;
  if (bytes > 0) ledger_->take(Category::staging, bytes);
  if (bytes < 0) ledger_->give_back(Category::staging, -bytes);
}

ByteBuffer Staging::take(std::int64_t bytes, std::int64_t limit) {
  const auto found = kept_.lower_bound(static_cast<std::size_t>(bytes));
  if (found != kept_.end() && found->first / 2 <= static_cast<std::size_t>(bytes)) {
    ByteBuffer memory = std::move(found->second);
    kept_.erase(found);
    return memory;
  }
  while (!kept_.empty() && bytes_ + bytes > limit) {
    count(-static_cast<std::int64_t>(kept_.rbegin()->first));
    kept_.erase(std::prev(kept_.end()));
  }
  ByteBuffer memory;
  memory.reserve(static_cast<std::size_t>(bytes));
  count(static_cast<std::int64_t>(memory.capacity()));
  return memory;
}

void Staging::keep(ByteBuffer memory) {
  kept_.emplace(memory.capacity(), std::move(memory));
}

BackgroundSave::BackgroundSave(Device& device, SaveList& list, const BackgroundLimits& limits,
                               Staging& staging, Write write)
    : device_(device),
      list_(list),
      limits_(limits),
      staging_(staging),
      write_(std::move(write)),
      copied_(limits.apart),
      thread_([this] { run(); }) {}

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

bool BackgroundSave::copied() const {
  const std::lock_guard lock(mutex_);
  return copied_;
}

void BackgroundSave::wait_until_copied() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return copied_; });
}

bool BackgroundSave::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::string BackgroundSave::result() {
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  return std::move(failure_);
}

void BackgroundSave::signal(bool& event) {
  const std::lock_guard lock(mutex_);
  event = true;
  changed_.notify_all();
}

void BackgroundSave::fill(Context& context) {
  for (std::int64_t next = 0; (next = list_.portions().next_bytes()) > 0;) {
    if (bytes_ > 0 && bytes_ + next > limits_.staging) break;
    ByteBuffer memory = staging_.take(next, limits_.staging);
    const std::size_t taken = memory.capacity();
    try {
      staged_.push_back(*list_.portions().next(context, std::move(memory)));
    } catch (...) {
      staging_.forget(taken);
      throw;
    }
    bytes_ += static_cast<std::int64_t>(staged_.back().bytes.capacity());
  }
  if (list_.portions().next_bytes() == 0) signal(copied_);
}

void BackgroundSave::give(Context& context, const PortionSink& sink) {
  for (fill(context); !staged_.empty(); fill(context)) {
    sink(staged_.front().bytes, staged_.front().writes);
    bytes_ -= static_cast<std::int64_t>(staged_.front().bytes.capacity());
    staging_.keep(std::move(staged_.front().bytes));
    staged_.pop_front();
  }
}

void BackgroundSave::run() {
  try {
    if (limits_.apart) lower_priority(limits_.niceness, limits_.io);
    std::optional<Context> context;
    std::string problem;  // of this rank's copies; `write` reports it to the other ranks
    try {
      fill(context.emplace(device_, 1));
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (!limits_.apart) lower_priority(limits_.niceness, limits_.io);
    failure_ = write_([&](const PortionSink& sink) {
      if (!problem.empty()) throw Error("copying the state: " + problem);
      give(*context, sink);
    });
  } catch (...) {
    error_ = std::current_exception();
  }
  for (Portion& portion : staged_) staging_.keep(std::move(portion.bytes));
  staged_.clear();
  signal(copied_);
  signal(done_);
}

}  // namespace trident
