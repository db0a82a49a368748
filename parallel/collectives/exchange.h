// One operation of one group, as one member carries it out: messages to the other members, each
// checked against this member's own descriptor, and the errors that name everything.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/transport/endpoint.h"

namespace trident {

// A group seen by one member.
struct Membership {
  std::shared_ptr<Endpoint> endpoint;
  std::string name;
  std::uint64_t id = 0;
  std::vector<int> members;  // world ranks by group rank
  int rank = 0;              // of this member in the group
  std::atomic<std::int64_t> bytes_sent{0};
};

class Exchange {
 public:
  // Throws AbortedError if the world is aborted.
  Exchange(Membership& group, const Descriptor& descriptor, int channel = collective_channel);

  // A message on its way to or from a member.
  struct Transfer {
    std::unique_ptr<Request> request;
    int peer = 0;  // group rank
    bool receives = false;
  };

  int rank() const { return group_.rank; }
  int size() const { return static_cast<int>(group_.members.size()); }
  const Descriptor& descriptor() const { return descriptor_; }

  Transfer send(int peer, const void* data, std::size_t bytes);
  Transfer receive(int peer, void* data, std::size_t bytes);
  Transfer receive_view(int peer, void* staging, std::size_t bytes);

  // Waits for all; throws CommunicationError (a late or ended peer, a mismatch) or AbortedError.
  void wait(std::span<Transfer> transfers);
  void wait(Transfer& transfer) { wait(std::span(&transfer, 1)); }

  // Sends the descriptor to the next member; the first wait() compares the previous member's. For
  // operations in which not every member receives something from the member before it.
  void announce();

 private:
  [[noreturn]] void report(Outcome outcome, std::span<Transfer> transfers, std::size_t failed);
  [[noreturn]] void fail(const std::string& text);
  std::string place() const;
  int world_rank(int peer) const { return group_.members[static_cast<std::size_t>(peer)]; }

  Membership& group_;
  Descriptor descriptor_;
  int channel_;
  std::vector<Transfer> announced_;
};

// Part i of `count` elements cut over `parts`: [begin, end), sizes differ by at most one.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
Segment segment_of(std::int64_t count, int parts, int i);

}  // namespace trident
