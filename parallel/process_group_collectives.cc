// The collectives of ProcessGroup: they check the arguments, describe the operation and enqueue its
// work.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "parallel/collectives/algorithm_choice.h"
#include "parallel/process_group.h"
#include "parallel/process_group_alone.h"
#include "parallel/process_group_checks.h"
#include "parallel/queued_work.h"

namespace trident {
namespace {

std::byte* address(const Access& access, const Tensor& tensor) {
  return static_cast<std::byte*>(TensorAddress::of(access, tensor));
}

struct CollectiveWork final : Work::Impl {
  std::shared_ptr<ProgressThread::Task> task = std::make_shared<ProgressThread::Task>();
  void wait(const Access&) override { task->wait(); }
  bool done() const override { return task->done(); }
};

Descriptor describe(const GroupHandle& group, Operation operation, const Tensor& tensor) {
  Descriptor d;
  d.group = group->membership.id;
  d.operation = operation;
  d.dtype = tensor.dtype();
  d.count = tensor.numel();
  return d;
}

CollectiveCase case_of(const Membership& own, Context& context, const Descriptor& d, std::int64_t n,
                       Algorithm asked) {
  const TransportOptions& options = own.endpoint->options();
  const bool on_gpu = context.device().kernels() == DeviceKind::cuda;
  const bool by_library = on_gpu && own.library != nullptr;
  return {.operation = d.operation,
          .algorithm = asked == Algorithm::automatic ? options.algorithm : asked,
          .sharing = own.rendezvous == nullptr ? Sharing::nothing : own.rendezvous->sharing(),
          .on_gpu = on_gpu,
          .by_library = by_library && d.operation != Operation::barrier,
          .library_reduces = by_library && own.library->reduces(d.reduce_op),
          .views_need_staging = own.library != nullptr || own.endpoint->needs_staging(),
          .by_transport = !on_gpu && own.endpoint->reduces(d.dtype, d.reduce_op),
          .host_runs = own.runs != nullptr,
          .deterministic = options.deterministic,
          .members = static_cast<int>(own.members.size()),
          .rank = own.rank,
          .root = d.root,
          .n = n,
          .dtype = d.dtype,
          .reduce_op = d.reduce_op};
}

// Numbers the operation, chooses its implementation and enqueues that. `n`: elements of the
// member's own part. `asked`: the requested algorithm, of all_reduce. `counts`: of all_to_all_v.
Work issue(const GroupHandle& group, Context& context, Async async, Descriptor descriptor,
           std::int64_t n, const Tensor& input, const Tensor& output,
           Algorithm asked = Algorithm::direct,
           const std::shared_ptr<const CountsTable>& counts = nullptr,
           Purpose purpose = Purpose::none) {
  ProcessGroup::Impl& impl = *group;
  const char* const operation = name_of(descriptor.operation).data();
  const CollectiveCase c = case_of(impl.membership, context, descriptor, n, asked);
  const Collective& row =
      choose(c, impl.membership.more_collectives(), [&] { return place(group, operation); });
  descriptor.algorithm = row.algorithm;
  descriptor.sequence = impl.next_operation++;
  impl.operations.fetch_add(1, std::memory_order_relaxed);
  Tensor staging;
  const bool on_gpu = context.device().kind() == DeviceKind::cuda;
  if (const std::size_t bytes = staging_bytes(row, c); bytes > 0) {
    staging = context.empty({static_cast<std::int64_t>(bytes)}, DType::u8, Category::communication);
  }
  if (has_no_peers(context, impl.membership)) {
    trace(context, impl.membership, descriptor, async, counts.get());
    // A tensor that is summed in place keeps this rank's own part.
    const bool apart = output && (descriptor.operation == Operation::broadcast
                                      ? descriptor.root != impl.membership.rank
                                      : !input || output.numel() != input.numel());
    if (apart) fill_placeholder(context, output);
    return planned_work(context, async, staging);
  }
  need_reach(group, operation, context);
  if (on_gpu) {  // the hosts carry out a barrier
    impl.prepare(context.device(),
                 !impl.membership.without_timeout || descriptor.operation != Operation::barrier);
  }
  // `run` holds the group as a raw pointer: the group's own thread must not hold the last
  // reference.
  const bool looks = async == Async::no;  // an asynchronous one leaves its core to other work
  auto run = [&impl, &context, descriptor, input, output, n, staging, counts, looks, purpose,
              carry_out = row.run](const Access& access) {
    Exchange exchange(impl.membership, descriptor, collective_channel, looks,
                      reach_of(context, access));
    exchange.set_counts(counts.get());
    const LoggedSpan span(exchange, -1, purpose);
    carry_out(exchange, {.input = address(access, input),
                         .output = address(access, output),
                         .n = n,
                         .staging = address(access, staging)});
  };
  if (async == Async::no) {
    context.stream().enqueue(
        [group, before = impl.side_finished, run = std::move(run)](const Access& access) {
          group->run_in_order([&] {
            if (before != nullptr) before->wait(access);
            run(access);
          });
        });
    return Work();
  }
  if (on_gpu) {
    const auto work = run_async(context, impl.progress(), impl.side_stream(context.device()), run);
    impl.side_finished = work->finished();
    return Work(work);
  }
  auto work = std::make_shared<CollectiveWork>();
  context.stream().enqueue([group, task = work->task, run = std::move(run)](const Access& access) {
    group->progress().push(task, [run, access] { run(access); });
  });
  return Work(std::move(work));
}

// The operation of a group of one rank: output := input.
Work copy_own(Context& context, const Tensor& input, const Tensor& output) {
  if (context.is_planning()) return Work();
  const auto copy_peer = backend_of(context).copy_peer;
  context.stream().enqueue([copy_peer, input, output](const Access& access) {
    copy_peer(access, address(access, output), address(access, input),
              static_cast<std::size_t>(input.bytes()));
  });
  return Work();
}

}  // namespace

Work ProcessGroup::all_reduce(Context& context, const Tensor& tensor, ReduceOp op, Async async,
                              Algorithm algorithm) const {
  need(impl_, "all_reduce", "tensor", tensor);
  need_support(impl_, "all_reduce", op, tensor.dtype());
  if (size() == 1) return Work();
  Descriptor d = describe(impl_, Operation::all_reduce, tensor);
  d.reduce_op = op;
  return issue(impl_, context, async, d, d.count, tensor, tensor, algorithm);
}

Work ProcessGroup::reduce_scatter(Context& context, const Tensor& input, const Tensor& output,
                                  ReduceOp op, Async async) const {
  need_parts(impl_, "reduce_scatter", "input", input, "output", output);
  need_support(impl_, "reduce_scatter", op, input.dtype());
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::reduce_scatter, input);
  d.reduce_op = op;
  return issue(impl_, context, async, d, output.numel(), input, output);
}

Work ProcessGroup::all_gather(Context& context, const Tensor& input, const Tensor& output,
                              Async async) const {
  need_parts(impl_, "all_gather", "output", output, "input", input);
  if (size() == 1) return copy_own(context, input, output);
  return issue(impl_, context, async, describe(impl_, Operation::all_gather, input), input.numel(),
               input, output);
}

Work ProcessGroup::broadcast(Context& context, const Tensor& tensor, int root, Async async) const {
  need(impl_, "broadcast", "tensor", tensor);
  need_member(impl_, "broadcast", "root", root);
  if (size() == 1) return Work();
  Descriptor d = describe(impl_, Operation::broadcast, tensor);
  d.root = root;
  return issue(impl_, context, async, d, d.count, tensor, tensor);
}

Work ProcessGroup::reduce(Context& context, const Tensor& tensor, int root, ReduceOp op,
                          Async async) const {
  need(impl_, "reduce", "tensor", tensor);
  need_member(impl_, "reduce", "root", root);
  need_support(impl_, "reduce", op, tensor.dtype());
  if (size() == 1) return Work();
  Descriptor d = describe(impl_, Operation::reduce, tensor);
  d.root = root;
  d.reduce_op = op;
  return issue(impl_, context, async, d, d.count, tensor, tensor);
}

Work ProcessGroup::gather(Context& context, const Tensor& input, const Tensor& output, int root,
                          Async async) const {
  need(impl_, "gather", "input", input);
  need_member(impl_, "gather", "root", root);
  if (rank() == root) need_parts(impl_, "gather", "output", output, "input", input);
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::gather, input);
  d.root = root;
  return issue(impl_, context, async, d, input.numel(), input, output);
}

Work ProcessGroup::scatter(Context& context, const Tensor& input, const Tensor& output, int root,
                           Async async) const {
  need(impl_, "scatter", "output", output);
  need_member(impl_, "scatter", "root", root);
  if (rank() == root) need_parts(impl_, "scatter", "input", input, "output", output);
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::scatter, output);
  d.root = root;
  return issue(impl_, context, async, d, output.numel(), input, output);
}

Work ProcessGroup::all_to_all(Context& context, const Tensor& input, const Tensor& output,
                              Async async) const {
  need(impl_, "all_to_all", "input", input);
  need(impl_, "all_to_all", "output", output);
  if (input.dtype() != output.dtype() || input.numel() != output.numel() ||
      input.numel() % size() != 0) {
    throw RequestError(fmt::format(
        "{}: input is {}[{}], output {}[{}]; both must hold {} equal parts of one dtype",
        place(impl_, "all_to_all"), name_of(input.dtype()), input.numel(), name_of(output.dtype()),
        output.numel(), size()));
  }
  if (size() == 1) return copy_own(context, input, output);
  return issue(impl_, context, async, describe(impl_, Operation::all_to_all, input),
               input.numel() / size(), input, output);
}

Work ProcessGroup::all_to_all_v(Context& context, const Tensor& input, const Tensor& output,
                                const std::vector<std::int64_t>& counts, Async async,
                                Purpose purpose) const {
  return all_to_all_v(context, input, output, CountsTable{size(), counts}, async, purpose);
}

Work ProcessGroup::all_to_all_v(Context& context, const Tensor& input, const Tensor& output,
                                CountsTable counts, Async async, Purpose purpose) const {
  constexpr auto operation = "all_to_all_v";
  need(impl_, operation, "input", input);
  need(impl_, operation, "output", output);
  const auto members = static_cast<std::size_t>(size());
  const std::size_t entries = counts.is_complete() ? members * members : members;
  if (counts.members != size() || counts.counts.size() != entries ||
      std::ranges::any_of(counts.counts, [](std::int64_t n) { return n < 0; })) {
    throw RequestError(fmt::format("{}: {} counts; needs {}, none negative",
                                   place(impl_, operation), counts.counts.size(), entries));
  }
  const auto table = std::make_shared<const CountsTable>(std::move(counts));
  if (input.dtype() != output.dtype() || input.numel() != table->input(rank()) ||
      output.numel() != table->output(rank())) {
    throw RequestError(fmt::format(
        "{}: input is {}[{}], output {}[{}]; the counts say {} and {}, "
        "of one dtype",
        place(impl_, operation), name_of(input.dtype()), input.numel(), name_of(output.dtype()),
        output.numel(), table->input(rank()), table->output(rank())));
  }
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::all_to_all_v, input);
  d.count = table->hash();
  return issue(impl_, context, async, d, table->most(), input, output, Algorithm::direct, table,
               purpose);
}

void ProcessGroup::barrier(Context& context) const {
  need(impl_, "barrier");
  if (size() > 1) {
    Descriptor d;
    d.group = impl_->membership.id;
    d.operation = Operation::barrier;
    issue(impl_, context, Async::no, d, 0, {}, {});
  }
  context.synchronize();
}

}  // namespace trident
