// A process group: some ranks that communicate, seen by one of them.
//
// A value: copies are the same group. Every collective is called by all members in the same order
// with the same operation, count, dtype and arguments; the members check that of each other. A
// mismatch, or a member that does not come within the timeout (but see without_timeout()), is a
// CommunicationError on every rank that names the group, the ranks, both operations and the
// sequence number. Groups of one rank return at once.
//
// Work enters the context's stream in order, on the CPU too: the buffers are read and written when
// the stream gets there. With `Async::yes` the operation goes on beside later stream work;
// Work::wait() makes the stream (not the host) wait for it. The buffers must not be touched, and
// are kept alive, until then. Collectives of one group run in the order in which they were issued,
// blocking or not; one thread at a time issues a group's operations. A Work is waited for before
// its Context goes; a send whose Work is dropped still arrives, a receive is cancelled.
//
// Arguments that are wrong by themselves are a RequestError at the call. Errors of the operation
// itself surface in stream work: at once on the CPU, at the next synchronize() on an asynchronous
// device. Either ends all ranks (see Transport::abort).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/tensor.h"
#include "kernels/reduce_op.h"
#include "parallel/transport/file_work.h"

namespace trident {

class OperationLog;

enum class Algorithm : std::uint8_t { automatic, direct, ring, tree };
enum class Async : bool { no, yes };

// A pending asynchronous operation. Copies share it; an empty one is complete (blocking operations
// return that: they are part of the stream's order).
class Work {
 public:
  struct Impl;
  Work() = default;
  explicit Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  // Makes the stream of `context` wait until the operation is done; errors surface there.
  void wait(Context& context) const;
  // True when it is done (does not block); the host may use it to release buffers.
  bool done() const;

 private:
  std::shared_ptr<Impl> impl_;
};

// What this rank has sent through a group: payload only, self excluded; counted when an operation
// is carried out. Of N members that hold b bytes each, member r sends
//   all_reduce, direct     b + (N-2)s, s the bytes of its segment: of n elements [nr/N, n(r+1)/N)
//   all_reduce, ring       2b less segments r+1 and r+2 (mod N); as direct where N divides n
//   all_reduce, tree       b for its parent and for each child
//   reduce_scatter, all_gather, all_to_all     (N-1)b, b the bytes of a part
//   broadcast, scatter     (N-1)b from the root, b the bytes of a part, and 0 from others
//   reduce, gather         b, and 0 from the root
//   barrier, split         0
struct Traffic {
  std::int64_t bytes_sent = 0;
  std::int64_t operations = 0;  // collectives and sends, as issued
};

class ProcessGroup {
 public:
  struct Impl;
  ProcessGroup() = default;  // undefined: belongs to no transport
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  int rank() const;  // of this member, 0 … size-1
  int size() const;
  const std::string& name() const;
  const std::vector<int>& world_ranks() const;  // by group rank
  Traffic traffic() const;
  // Enters what this group's operations do into `log`, under this number. Before its first one.
  void log(std::shared_ptr<OperationLog> log, std::uint8_t group) const;

  // Another group of the same members, for operations that may overlap with this one's. No
  // communication.
  ProcessGroup duplicate(const std::string& name) const;
  // A duplicate whose operations, and those of groups made from it, wait as long as the members
  // live, however long one takes: for work whose time depends on files. A member that has ended or
  // failed, or under MPI can't be reached for the timeout, still ends the wait. Of tensors on GPUs
  // that NCCL carries this holds for barriers only: what NCCL has begun has to end in the timeout.
  ProcessGroup without_timeout(const std::string& name) const;
  // While what this gives lives, this rank works on files (or waits for a terminal): that doesn't
  // count to the timeout of whoever waits for it meanwhile, or for another rank that does.
  FileWork file_work() const;
  // Members with equal color form a group, ordered by (key, rank). Collective over this group.
  ProcessGroup split(int color, int key, const std::string& name) const;
  // The group of these members (ranks of this group, in the order given). Called by exactly those;
  // no communication. The caller's rank must be among them.
  ProcessGroup subgroup(std::span<const int> members, const std::string& name) const;

  // Of tensors on the context's GPU, where a library connects the members: opens what `groups`
  // need, split from this group's, rather than at each group's first operation beside others. All
  // members call it with the same number of groups at the same places, undefined ones where they
  // are in none; the groups at a place have no rank in common. Else does nothing.
  void connect(Context&, std::span<const ProcessGroup> groups) const;

  // tensor := op over the members' tensors, in place. In deterministic mode (a property of the
  // transport's options) every element is added in group-rank order, whatever the size.
  Work all_reduce(Context&, const Tensor& tensor, ReduceOp op = ReduceOp::sum,
                  Async async = Async::no, Algorithm algorithm = Algorithm::automatic) const;
  // input [n * size], output [n]: part r of the reduction goes to rank r. output may be part
  // rank() of input.
  Work reduce_scatter(Context&, const Tensor& input, const Tensor& output,
                      ReduceOp op = ReduceOp::sum, Async async = Async::no) const;
  // input [n], output [n * size] in group-rank order. input may be part rank() of output.
  Work all_gather(Context&, const Tensor& input, const Tensor& output,
                  Async async = Async::no) const;
  Work broadcast(Context&, const Tensor& tensor, int root, Async async = Async::no) const;
  // The root's tensor becomes the reduction; the others' tensors stay as they are.
  Work reduce(Context&, const Tensor& tensor, int root, ReduceOp op = ReduceOp::sum,
              Async async = Async::no) const;
  // output [n * size] on the root, undefined elsewhere.
  Work gather(Context&, const Tensor& input, const Tensor& output, int root,
              Async async = Async::no) const;
  // input [n * size] on the root, undefined elsewhere.
  Work scatter(Context&, const Tensor& input, const Tensor& output, int root,
               Async async = Async::no) const;
  // Part r of input goes to rank r, part r of output comes from rank r; no overlap allowed.
  Work all_to_all(Context&, const Tensor& input, const Tensor& output,
                  Async async = Async::no) const;
  void barrier(Context&) const;  // the host waits too

  // Point to point, in order per (sender, receiver, channel); the receiver checks count and dtype.
  // Asynchronous sends do not wait for the receiver. `channel` (0 … 7) keeps independent streams of
  // messages between the same two ranks apart (forward and backward transfers).
  Work send(Context&, const Tensor& tensor, int peer, Async async = Async::no,
            int channel = 0) const;
  Work receive(Context&, const Tensor& tensor, int peer, Async async = Async::no,
               int channel = 0) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace trident
