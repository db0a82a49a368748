// One message of an MpiEndpoint in flight.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/transport/mpi_endpoint.h"

namespace trident {

// Any thread may test or wait. Destroying an incomplete receive cancels it, or waits for a message
// that has begun to arrive. Destroying an incomplete send waits for it. Where either takes longer
// than the timeout, the job ends.
class MpiRequest final : public Request {
 public:
  enum class Kind { send, receive };
  MpiRequest(MpiEndpoint& endpoint, Kind kind, int peer, int tag, const Descriptor& descriptor,
             void* data, std::size_t bytes);
  ~MpiRequest() override;

  bool test() override;
  Outcome wait(Countdown& countdown) override;
  const Descriptor& peer_descriptor() const override { return envelope_.descriptor; }
  const std::byte* view() const override { return data_; }

 private:
  struct Envelope {
    Descriptor descriptor;
    std::uint64_t bytes = 0;   // of the payload
    std::int64_t sent_at = 0;  // steady clock, nanoseconds: for injected latency on one machine
  };
  void start_send();
  void start_receive();
  bool advance();  // with the lock held; true when complete
  bool read_envelope();
  void cancel() noexcept;

  MpiEndpoint& endpoint_;
  Kind kind_;
  int peer_;
  int tag_;
  Descriptor descriptor_;
  std::byte* data_;
  std::size_t bytes_;
  bool watched_;

  std::mutex mutex_;
  std::vector<std::byte> first_;       // envelope and small payload
  std::vector<MPI_Request> requests_;  // of first_, then of the parts of a large payload
  Envelope envelope_;
  bool mismatch_ = false;
  bool complete_ = false;
  std::atomic<std::size_t> done_{0};  // of requests_, in order
};

}  // namespace trident
