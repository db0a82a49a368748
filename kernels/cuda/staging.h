// Pinned host memory for small copies between host and GPU. A copy through it does not block the
// host, unless the memory is full. A stream owns its UploadRing and Downloads; they are used inside
// stream work, except deliver(). Throws Error if the CUDA runtime fails.
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

// A block of pinned host memory, freed with the object.
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

// Copies from host to device through a ring buffer. The ring reuses the memory of its oldest copy
// once that copy has run.
class UploadRing {
 public:
  explicit UploadRing(std::size_t bytes) : memory_(bytes) {}
  // Enqueues a copy; `from` may be reused at once. Waits only if the ring is full of copies that
  // have not run.
  void copy(const Queue& queue, void* to, std::span<const std::byte> from);

 private:
  struct Piece {
    std::size_t begin, end;
    std::unique_ptr<Event> done;
  };
  // Returns a free contiguous range of at least one and at most `wanted` bytes.
  std::span<std::byte> take(std::size_t wanted);
  void retire();

  Pinned memory_;
  std::size_t head_ = 0;         // offset of the next copy
  std::deque<Piece> in_flight_;  // oldest first
  std::vector<std::unique_ptr<Event>> idle_;
};

// Copies from device to host. The values reach their destination in deliver().
class Downloads {
 public:
  explicit Downloads(std::size_t bytes) : memory_(bytes) {}
  // Enqueues a copy. A copy that does not fit the buffer goes directly to its destination and waits
  // for the queue.
  void copy(const Queue& queue, std::span<std::byte> to, const void* from);
  // Writes the values to their destinations. Requires that the queue has run.
  void deliver();

 private:
  Pinned memory_;
  std::size_t used_ = 0;
  std::vector<std::pair<std::span<std::byte>, const std::byte*>> pending_;
};

}  // namespace trident::cuda
