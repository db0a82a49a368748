// The shared-memory rendezvous of a group. Members that share memory need no messages: each shows
// the others its descriptor and its buffers, and reads and writes theirs. Processes share no
// buffers. Each has shared-memory slots for the data that it shows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/countdown.h"
#include "parallel/collectives/descriptor.h"

namespace trident {

enum class Outcome {
  complete,
  late,        // the countdown is over
  peer_ended,  // the other rank's body has returned
  mismatch     // the peer's descriptor differs; no data was touched
};

// The access that the members of a group have to each other's memory.
enum class Sharing : std::uint8_t {
  nothing,  // they send messages
  slots,    // each shows the others some bytes (SharedRendezvous::slot)
  fetches,  // the same, and copies from another's tensors by the system
  tensors   // threads of one process: they read and write each other's tensors
};

// One member's side of the rendezvous of its group. One operation at a time: arrive(), then
// finish() or, where others use this member's buffers, leave().
class SharedRendezvous {
 public:
  virtual ~SharedRendezvous() = default;

  // Never Sharing::nothing.
  virtual Sharing sharing() const = 0;

  // The slot: bytes that a member may write before it arrives, and that all may read until the next
  // rendezvous.
  virtual std::size_t slot_bytes() const = 0;
  virtual std::byte* slot() = 0;

  struct Result {
    Outcome outcome = Outcome::complete;
    std::vector<int> members;  // group ranks that are late, have ended, or differ
  };
  // Shows the descriptor and the buffers, and waits for all members to do so. Only where the
  // outcome is complete may this member touch the others' buffers. Throws AbortedError. `look`: the
  // time for which it may keep its core in the hope that the others come soon.
  virtual Result arrive(const Descriptor& descriptor, const void* input, void* output,
                        std::chrono::microseconds look, Countdown countdown) = 0;
  // The descriptor and the buffers that a member has shown, after arrive(). Where members have no
  // access to each other's tensors, input() is the member's slot.
  virtual const Descriptor& descriptor(int member) const = 0;
  virtual const std::byte* input(int member) const = 0;
  virtual std::byte* output(int member) const = 0;
  // With Sharing::fetches: the address, in a member's own memory, of the input that it has shown,
  // and a copy from there.
  virtual const std::byte* address(int /*member*/) const { return nullptr; }
  virtual void fetch(int /*member*/, std::byte* /*to*/, const std::byte* /*from*/,
                     std::size_t /*bytes*/) {}
  // Reports that this member touches no other member's buffers any more. Call it after every
  // arrive().
  virtual void finish() noexcept = 0;
  // Waits until all members have finished. Throws AbortedError.
  virtual void leave(std::chrono::microseconds look) = 0;
  // After an abort: waits until no member can be touching this member's buffers.
  virtual void abandon() noexcept = 0;
};

}  // namespace trident
