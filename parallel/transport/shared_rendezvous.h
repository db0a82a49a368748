// Where the members of a group share memory they need no messages: each shows the others its
// descriptor and its buffers, and reads and writes theirs. Processes share no buffers, only the
// desks that each has for what it shows.
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

// How far the members of a group reach into each other's memory.
enum class Sharing : std::uint8_t {
  nothing,  // they send messages
  slots,    // each shows the others some bytes of its own (SharedRendezvous::desk)
  fetches,  // so, and the system copies from another's tensors (SharedRendezvous::fetch)
  tensors   // threads of one process: they read and write each other's tensors
};

// One member's seat at the meetings of its group. One operation at a time: arrive, then, where
// others use this member's buffers, leave.
class SharedRendezvous {
 public:
  virtual ~SharedRendezvous() = default;

  // Not nothing.
  virtual Sharing sharing() const = 0;

  // Bytes that a member may put on its desk before it arrives, for all to read until they meet the
  // next time.
  virtual std::size_t slot_bytes() const = 0;
  virtual std::byte* slot() = 0;

  struct Result {
    Outcome outcome = Outcome::complete;
    std::vector<int> members;  // group ranks that are late, have ended, or differ
  };
  // Shows the descriptor and the buffers and waits for all members to do so. Only where the outcome
  // is complete may this member touch the others' buffers. Throws AbortedError.
  // `look`: for so long it may keep its core in the hope that the others come soon.
  virtual Result arrive(const Descriptor& descriptor, const void* input, void* output,
                        std::chrono::microseconds look, Countdown countdown) = 0;
  // What a member has shown, after arrive: its buffers; as input its desk where members don't reach
  // each other's tensors.
  virtual const Descriptor& descriptor(int member) const = 0;
  virtual const std::byte* input(int member) const = 0;
  virtual std::byte* output(int member) const = 0;
  // Where members fetch: the input that a member has shown, in its own memory, and a copy from
  // there.
  virtual const std::byte* address(int /*member*/) const { return nullptr; }
  virtual void fetch(int /*member*/, std::byte* /*to*/, const std::byte* /*from*/,
                     std::size_t /*bytes*/) {}
  // This member touches no other's buffers any more. After every arrive.
  virtual void finish() noexcept = 0;
  // Waits until all members have finished. Throws AbortedError.
  virtual void leave(std::chrono::microseconds look) = 0;
  // After an abort: waits until nobody can be touching this member's buffers.
  virtual void abandon() noexcept = 0;
};

}  // namespace trident
