// Processes the blocks of files with several threads. The results come in the order of the blocks,
// so they don't depend on the number of threads. One thread owns a BlockThreads and makes all
// calls.
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

// A queue of blocks that several threads work on; first in, first out.
template <class Result>
class BlockThreads {
 public:
  using Work = std::function<Result(DocumentBlock&)>;

  // Starts `threads` threads, or fewer if the system's limit is reached; Error if it can't start
  // any. Each thread calls `worker` once for its own Work.
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
  // Waits for the oldest block and returns its result, or rethrows the exception of its Work. The
  // queue must not be empty.
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
  // The most bytes of text in slots: a document that can't be split may be long.
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

  const std::size_t most_;  // blocks in the queue
  const std::function<Work()> worker_;
  std::size_t bytes_ = 0;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_, done_;
  std::deque<std::unique_ptr<Slot>> slots_;
  std::size_t begun_ = 0;  // slots that a thread has taken
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

// Reads the files in blocks, processes the blocks with `threads` threads, and calls take(result)
// for each block in order. Calls report(progress) at most every 200 ms, and once at the end. Both
// run on the calling thread.
template <class Result, class Take, class Report>
void process_in_parallel(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                         int threads, std::function<typename BlockThreads<Result>::Work()> worker,
                         Take take, Report report) {
  using Clock = std::chrono::steady_clock;
  ReadingProgress progress;
  for (const SourceFile& file : files) progress.total += std::filesystem::file_size(file.path);
  const auto begin = Clock::now();
  auto reported = begin;
  DocumentBlocks blocks(files, encoder);
  BlockThreads<Result> through(std::max(1, threads), std::move(worker));
  const auto report_now = [&] {
    reported = Clock::now();
    progress.read = blocks.read();
    progress.seconds = std::chrono::duration<double>(reported - begin).count();
    report(progress);
  };
  for (bool more = true; more || through.waiting() > 0;) {
    if (more && through.takes_more()) {
      auto block = blocks.next();
      more = block.has_value();
      if (more) through.put(std::move(*block));
      continue;
    }
    take(through.take());
    if (Clock::now() - reported > std::chrono::milliseconds(200)) report_now();
  }
  progress.ends = true;
  report_now();
}

}  // namespace trident
