#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace trident::cuda {

Pinned::Pinned(std::size_t bytes) : bytes_(bytes) {
  void* address = nullptr;
  check(cudaMallocHost(&address, bytes), "cudaMallocHost");
  data_ = static_cast<std::byte*>(address);
}
Pinned::~Pinned() {
  cudaFreeHost(data_);
}

void UploadRing::retire() {
  idle_.push_back(std::move(in_flight_.front().done));
  in_flight_.pop_front();
}

std::span<std::byte> UploadRing::take(std::size_t wanted) {
  while (!in_flight_.empty() && in_flight_.front().done->reached()) retire();
  for (;;) {
    if (in_flight_.empty()) {
      head_ = 0;
      return {memory_.data(), std::min(memory_.size(), wanted)};
    }
    // The free range lies between the head and the oldest copy, around the end of the ring.
    const std::size_t tail = in_flight_.front().begin;
    if (head_ == memory_.size()) head_ = 0;
    const std::size_t space = head_ > tail ? memory_.size() - head_ : tail - head_;
    if (space > 0) return {memory_.data() + head_, std::min(space, wanted)};
    in_flight_.front().done->synchronize();
    retire();
  }
}

void UploadRing::copy(const Queue& queue, void* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::span<std::byte> piece = take(from.size());
    std::memcpy(piece.data(), from.data(), piece.size());
    check(cudaMemcpyAsync(to, piece.data(), piece.size(), cudaMemcpyHostToDevice, queue.stream),
          "cudaMemcpyAsync to the device");
    if (idle_.empty()) idle_.push_back(std::make_unique<Event>());
    std::unique_ptr<Event> done = std::move(idle_.back());
    idle_.pop_back();
    done->record(queue);
    in_flight_.push_back({head_, head_ + piece.size(), std::move(done)});
    head_ += piece.size();
    to = static_cast<std::byte*>(to) + piece.size();
    from = from.subspan(piece.size());
  }
}

void Downloads::copy(const Queue& queue, std::span<std::byte> to, const void* from) {
  if (used_ + to.size() > memory_.size()) {
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, queue.stream),
          "cudaMemcpyAsync to the host");
    check(cudaStreamSynchronize(queue.stream), "cudaStreamSynchronize");
    return;
  }
  std::byte* const here = memory_.data() + used_;
  used_ += to.size();
  check(cudaMemcpyAsync(here, from, to.size(), cudaMemcpyDeviceToHost, queue.stream),
        "cudaMemcpyAsync to the host");
  pending_.emplace_back(to, here);
}

void Downloads::deliver() {
  for (const auto& [to, from] : pending_) std::memcpy(to.data(), from, to.size());
  pending_.clear();
  used_ = 0;
}

}  // namespace trident::cuda
