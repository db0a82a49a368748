// Work on the blocks of files by several threads. Results come in the order of the blocks, so they
// don't depend on the number of threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/threads.h"
#include "datasets/document_blocks.h"

namespace trident {

// Blocks on their way through the threads, which come out in the order in which they went in.
template <class Result>
class BlockThreads {
 public:
  using Work = std::function<Result(DocumentBlock&)>;

  // Each thread has a Work of its own, from `worker`. As many threads as the system allows, if
  // those are fewer.
  BlockThreads(int threads, std::function<Work()> worker)
      : most_(static_cast<std::size_t>(3 * threads)), worker_(std::move(worker)) {
    while (static_cast<int>(threads_.size()) < threads) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        if (threads_.empty())
          throw Error("no thread can be started to tokenize; " + thread_limit_text());
        break;
      }
    }
  }
  BlockThreads(const BlockThreads&) = delete;
  BlockThreads& operator=(const BlockThreads&) = delete;
  ~BlockThreads() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t waiting() const { return slots_.size(); }
  bool takes_more() const {
    return slots_.empty() || (slots_.size() < most_ && bytes_ < kMostBytes);
  }
  void put(DocumentBlock block) {
    auto slot = std::make_unique<Slot>(Slot{.block = std::move(block)});
    for (const TextPart& part : slot->block.parts) slot->bytes += part.text.size();
    bytes_ += slot->bytes;
    {
      const std::lock_guard lock(mutex_);
      slots_.push_back(std::move(slot));
    }
    changed_.notify_all();
  }
  // The first of them, once it is done.
  Result take() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return slots_.front()->done; });
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    --begun_;
    bytes_ -= slot->bytes;
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->result);
  }

 private:
  // Of text in slots: documents that can't be cut may be long.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 27;

  struct Slot {
    DocumentBlock block;
    std::size_t bytes = 0;
    Result result = {};
    std::exception_ptr error = {};
    bool done = false;
  };

  void work() {
    want_cores(static_cast<int>(most_ / 3));
    Work own;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || begun_ < slots_.size(); });
      if (ends_) return;
      Slot& slot = *slots_[begun_++];
      lock.unlock();
      try {
        if (!own) own = worker_();
        slot.result = own(slot.block);
      } catch (...) {
        slot.error = std::current_exception();
      }
      slot.block = {};
      lock.lock();
      slot.done = true;
      done_.notify_one();
    }
  }

  const std::size_t most_;  // blocks
  const std::function<Work()> worker_;
  std::size_t bytes_ = 0;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_, done_;
  std::deque<std::unique_ptr<Slot>> slots_;
  std::size_t begun_ = 0;  // of the slots
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

// Gives take(result) what the threads make of each block, and tell(progress) now and then, and at
// the end.
template <class Result, class Take, class Tell>
void through_threads(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                     int threads, std::function<typename BlockThreads<Result>::Work()> worker,
                     Take take, Tell tell) {
  using Clock = std::chrono::steady_clock;
  ReadingProgress progress;
  for (const SourceFile& file : files) progress.total += std::filesystem::file_size(file.path);
  const auto begin = Clock::now();
  auto told = begin;
  DocumentBlocks blocks(files, encoder);
  BlockThreads<Result> through(std::max(1, threads), std::move(worker));
  const auto tell_now = [&] {
    told = Clock::now();
    progress.read = blocks.read();
    progress.seconds = std::chrono::duration<double>(told - begin).count();
    tell(progress);
  };
  for (bool more = true; more || through.waiting() > 0;) {
    if (more && through.takes_more()) {
      auto block = blocks.next();
      more = block.has_value();
      if (more) through.put(std::move(*block));
      continue;
    }
    take(through.take());
    if (Clock::now() - told > std::chrono::milliseconds(200)) tell_now();
  }
  progress.ends = true;
  tell_now();
}

}  // namespace trident
