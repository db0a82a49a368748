// Pinned host memory through which small copies pass, so that the host never waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/queue.h"

namespace trident::cuda {

class Pinned {
 public:
  explicit Pinned(std::size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// Host to device: a ring, reused from its oldest copy on once that has run.
class UploadRing {
 public:
  explicit UploadRing(std::size_t bytes) : memory_(bytes) {}
  // `from` may be reused at once. Waits only where the ring is full of copies that have not run.
  void copy(const Queue& queue, void* to, std::span<const std::byte> from);

 private:
  struct Piece {
    std::size_t begin, end;
    std::unique_ptr<Event> done;
  };
  // A free stretch of at least one and at most `wanted` bytes.
  std::span<std::byte> take(std::size_t wanted);
  void retire();

  Pinned memory_;
  std::size_t head_ = 0;         // where the next piece begins
  std::deque<Piece> in_flight_;  // oldest first
  std::vector<std::unique_ptr<Event>> idle_;
};

// Device to host: values are handed over by deliver(), when the queue has run.
class Downloads {
 public:
  explicit Downloads(std::size_t bytes) : memory_(bytes) {}
  // What does not fit is copied at once, which waits for the queue.
  void copy(const Queue& queue, std::span<std::byte> to, const void* from);
  void deliver();

 private:
  Pinned memory_;
  std::size_t used_ = 0;
  std::vector<std::pair<std::span<std::byte>, const std::byte*>> pending_;
};

}  // namespace trident::cuda
