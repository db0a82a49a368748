// A process group: an ordered set of ranks that communicate, as one of them sees it.
//
// ProcessGroup is a value: copies refer to the same group. All members call every collective in the
// same order with the same operation, count, dtype and arguments, and the members check that of
// each other. A mismatch, or a member that does not arrive within the timeout (but see
// without_timeout()), is a CommunicationError on every rank. The error names the group, the ranks,
// both operations and the sequence number. Groups of one rank return at once.
//
// Work enters the context's stream in order, on the CPU too: the buffers are read and written when
// the stream reaches the operation. With `Async::yes` the operation runs concurrently with later
// stream work, and Work::wait() makes the stream (not the host) wait for it. Until then the caller
// must not touch the buffers; the operation keeps them alive. Collectives of one group run in the
// order in which they were issued, blocking or not. One thread at a time may issue a group's
// operations. A Work must be waited for before its Context is destroyed. A send whose Work is
// dropped still arrives; a receive whose Work is dropped is cancelled.
//
// An argument that is wrong by itself throws RequestError at the call. Errors of the operation
// itself surface in stream work: at once on the CPU, at the next synchronize() on an asynchronous
// device. Either error ends all ranks (see Transport::abort).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/tensor.h"
#include "kernels/reduce_op.h"
#include "parallel/operation_log.h"
#include "parallel/transport/file_work.h"

namespace trident {

struct CountsTable;  // parallel/collectives/descriptor.h

enum class Algorithm : std::uint8_t { automatic, direct, ring, tree };
enum class Async : bool { no, yes };

// A pending asynchronous operation. Copies share it. An empty Work is complete; blocking operations
// return one, because they are part of the stream's order.
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

// The payload that this rank has sent through a group, without messages to itself. It is counted
// when an operation is carried out. Of N members that hold b bytes each, member r sends
//   all_reduce, direct     b + (N-2)s, s the bytes of its segment: of n elements [nr/N, n(r+1)/N)
//   all_reduce, ring       2b less segments r+1 and r+2 (mod N); as direct where N divides n
//   all_reduce, tree       b for its parent and for each child
//   reduce_scatter, all_gather, all_to_all     (N-1)b, b the bytes of a part
//   all_to_all_v           the bytes for other members
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
  // Records this group's operations in `log` under the number `group`. Call it before the group's
  // first operation.
  void log(std::shared_ptr<OperationLog> log, std::uint8_t group) const;

  // Another group of the same members, for operations that may overlap with this group's. It needs
  // no communication.
  ProcessGroup duplicate(const std::string& name) const;
  // A duplicate without time-out. Its operations, and the operations of groups made from it, wait
  // as long as the members live, for work whose duration depends on files. The wait still ends when
  // a member has ended or failed, or when MPI can't reach it for the timeout. For GPU tensors that
  // NCCL carries this holds for barriers only: an operation that NCCL has begun must end within the
  // timeout.
  ProcessGroup without_timeout(const std::string& name) const;
  // While the returned object lives, this rank works on files (or waits for a terminal). That time
  // does not count toward the timeout of a rank that waits for this rank, or for another rank that
  // does.
  FileWork file_work() const;
  // Members with equal color form a group, ordered by (key, rank). Collective over this group.
  ProcessGroup split(int color, int key, const std::string& name) const;
  // The group of these members (ranks of this group, in the order given). Exactly these members
  // call it; it needs no communication. The caller's rank must be among them.
  ProcessGroup subgroup(std::span<const int> members, const std::string& name) const;

  // Opens the library's connections of `groups`, split from this group's, for tensors on the
  // context's GPU. Otherwise each group opens them at its first operation, concurrently with other
  // operations. All members call it with the same number of groups at the same places, undefined
  // groups where they belong to none. The groups at one place have no rank in common. It does
  // nothing where no library connects the members.
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
  // all_to_all with unequal parts (MPI_Alltoallv). Entry r·size + p of `counts`, the same on all
  // members, is the number of elements that rank r sends to rank p, its own included. A member's
  // parts follow each other in its input, by receiver, and in its output, by sender. `purpose` is
  // logged with the operation.
  Work all_to_all_v(Context&, const Tensor& input, const Tensor& output,
                    const std::vector<std::int64_t>& counts, Async async = Async::no,
                    Purpose purpose = Purpose::none) const;
  // The same with a table that may be smaller (parallel/collectives/descriptor.h).
  Work all_to_all_v(Context&, const Tensor& input, const Tensor& output, CountsTable counts,
                    Async async = Async::no, Purpose purpose = Purpose::none) const;
  void barrier(Context&) const;  // the host waits too

  // Point-to-point messages arrive in order per (sender, receiver, channel). The receiver checks
  // count and dtype. An asynchronous send does not wait for the receiver. `channel` (0 … 7)
  // separates independent streams of messages between the same two ranks (forward and backward
  // transfers).
  Work send(Context&, const Tensor& tensor, int peer, Async async = Async::no,
            int channel = 0) const;
  Work receive(Context&, const Tensor& tensor, int peer, Async async = Async::no,
               int channel = 0) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace trident
