// The collectives of ProcessGroup: checks, descriptor, and the work for the stream.
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "kernels/backend.h"
#include "parallel/collectives/choose.h"
#include "parallel/collectives/direct.h"
#include "parallel/collectives/ring.h"
#include "parallel/collectives/tree.h"
#include "parallel/process_group.h"
#include "parallel/process_group_checks.h"
#include "parallel/process_group_trace.h"
#include "parallel/queued_work.h"

namespace trident {
namespace {

std::byte* address(const Access& access, const Tensor& tensor) {
  return static_cast<std::byte*>(TensorAddress::of(access, tensor));
}

Algorithm resolve(const GroupHandle& group, Context& context, Algorithm algorithm,
                  const Tensor& tensor) {
  const Membership& own = group->membership;
  const TransportOptions& options = own.endpoint->options();
  if (algorithm == Algorithm::automatic) algorithm = options.algorithm;
  const bool on_gpu = context.device().kind() == DeviceKind::cuda;
  if (algorithm == Algorithm::automatic && on_gpu) algorithm = Algorithm::direct;
  if (algorithm == Algorithm::automatic) {
    algorithm = choose_all_reduce({.shared_memory = own.meeting != nullptr,
                                   .members = static_cast<int>(own.members.size()),
                                   .count = tensor.numel(),
                                   .bytes = tensor.bytes()});
  }
  if (algorithm != Algorithm::direct && on_gpu) {
    throw RequestError(fmt::format("{}: the {} algorithm is the CPU's; on a GPU use direct",
                                   place(group, "all_reduce"),
                                   algorithm == Algorithm::ring ? "ring" : "tree"));
  }
  if (algorithm != Algorithm::direct && options.deterministic &&
      group->membership.members.size() > 2) {
    throw RequestError(fmt::format(
        "{}: the {} algorithm does not add in rank order, which deterministic mode needs above 2 "
        "ranks; use direct",
        place(group, "all_reduce"), algorithm == Algorithm::ring ? "ring" : "tree"));
  }
  return algorithm;
}

struct CollectiveWork final : Work::Impl {
  std::shared_ptr<ProgressThread::Task> task = std::make_shared<ProgressThread::Task>();
  void wait(const Access&) override { task->wait(); }
  bool done() const override { return task->done(); }
};

// Holds the memory that the operation would work in.
struct PlannedWork final : Work::Impl {
  explicit PlannedWork(Tensor tensor) : staging(std::move(tensor)) {}
  void wait(const Access&) override { staging = Tensor(); }
  bool done() const override { return true; }
  Tensor staging;
};

Descriptor describe(const GroupHandle& group, Operation operation, const Tensor& tensor) {
  Descriptor d;
  d.group = group->membership.id;
  d.operation = operation;
  d.dtype = tensor.dtype();
  d.count = tensor.numel();
  return d;
}

// Numbers the operation and enqueues body(exchange, access, staging), with what it captures.
template <class Body>
Work issue(const GroupHandle& group, Context& context, Async async, Descriptor descriptor,
           std::int64_t elements, Body body) {
  ProcessGroup::Impl& impl = *group;
  descriptor.sequence = impl.next_operation++;
  impl.operations.fetch_add(1, std::memory_order_relaxed);
  Tensor staging;
  const bool on_gpu = context.device().kind() == DeviceKind::cuda;
  const Endpoint& endpoint = *impl.membership.endpoint;
  const bool by_library = context.device().kernels() == DeviceKind::cuda &&
                          endpoint.reduces(descriptor.reduce_op) &&
                          (descriptor.operation == Operation::all_reduce ||
                           descriptor.operation == Operation::reduce_scatter);
  if (endpoint.needs_staging() && !by_library) {
    const std::size_t bytes = staging_bytes(
        descriptor.operation, descriptor.algorithm, elements, descriptor.dtype,
        impl.membership.rank, static_cast<int>(impl.membership.members.size()), descriptor.root);
    if (bytes > 0) {
      staging =
          context.empty({static_cast<std::int64_t>(bytes)}, DType::u8, Category::communication);
    }
  }
  if (context.plans()) {
    trace(context, impl.membership, descriptor, async);
    return Work(std::make_shared<PlannedWork>(staging));
  }
  need_reach(group, name_of(descriptor.operation).data(), context);
  if (on_gpu) {  // hosts meet in a barrier
    impl.prepare(context.device(),
                 !impl.membership.patient || descriptor.operation != Operation::barrier);
  }
  // The group is a bare pointer here: its own thread must not be the last to hold it.
  const bool looks = async == Async::no;  // else the core is wanted beside it
  auto run = [&impl, &context, descriptor, staging, body, looks](const Access& access) {
    Exchange exchange(impl.membership, descriptor, collective_channel, looks,
                      reach_of(context, access));
    const LoggedSpan span(exchange);
    body(exchange, access, address(access, staging));
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
    const auto work = run_beside(context, impl.progress(), impl.side_stream(context.device()), run);
    impl.side_finished = work->finished();
    return Work(work);
  }
  auto work = std::make_shared<CollectiveWork>();
  context.stream().enqueue([group, task = work->task, run = std::move(run)](const Access& access) {
    group->progress().push(task, [run, access] { run(access); });
  });
  return Work(std::move(work));
}

// What a group of one rank does instead: output := input.
Work copy_own(Context& context, const Tensor& input, const Tensor& output) {
  if (context.plans()) return Work();
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
  d.algorithm = resolve(impl_, context, algorithm, tensor);
  return issue(impl_, context, async, d, d.count,
               [tensor](Exchange& exchange, const Access& access, std::byte* staging) {
                 const auto run =
                     exchange.descriptor().algorithm == Algorithm::ring   ? ring::all_reduce
                     : exchange.descriptor().algorithm == Algorithm::tree ? tree::all_reduce
                                                                          : direct::all_reduce;
                 run(exchange, address(access, tensor), tensor.numel(), staging);
               });
}

Work ProcessGroup::reduce_scatter(Context& context, const Tensor& input, const Tensor& output,
                                  ReduceOp op, Async async) const {
  need_parts(impl_, "reduce_scatter", "input", input, "output", output);
  need_support(impl_, "reduce_scatter", op, input.dtype());
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::reduce_scatter, input);
  d.reduce_op = op;
  return issue(impl_, context, async, d, output.numel(),
               [input, output](Exchange& exchange, const Access& access, std::byte* staging) {
                 direct::reduce_scatter(exchange, address(access, input), address(access, output),
                                        output.numel(), staging);
               });
}

Work ProcessGroup::all_gather(Context& context, const Tensor& input, const Tensor& output,
                              Async async) const {
  need_parts(impl_, "all_gather", "output", output, "input", input);
  if (size() == 1) return copy_own(context, input, output);
  return issue(impl_, context, async, describe(impl_, Operation::all_gather, input), input.numel(),
               [input, output](Exchange& exchange, const Access& access, std::byte*) {
                 direct::all_gather(exchange, address(access, input), address(access, output),
                                    input.numel());
               });
}

Work ProcessGroup::broadcast(Context& context, const Tensor& tensor, int root, Async async) const {
  need(impl_, "broadcast", "tensor", tensor);
  need_member(impl_, "broadcast", "root", root);
  if (size() == 1) return Work();
  Descriptor d = describe(impl_, Operation::broadcast, tensor);
  d.root = root;
  return issue(impl_, context, async, d, d.count,
               [tensor](Exchange& exchange, const Access& access, std::byte*) {
                 direct::broadcast(exchange, address(access, tensor), tensor.numel());
               });
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
  return issue(impl_, context, async, d, d.count,
               [tensor](Exchange& exchange, const Access& access, std::byte* staging) {
                 direct::reduce(exchange, address(access, tensor), tensor.numel(), staging);
               });
}

Work ProcessGroup::gather(Context& context, const Tensor& input, const Tensor& output, int root,
                          Async async) const {
  need(impl_, "gather", "input", input);
  need_member(impl_, "gather", "root", root);
  if (rank() == root) need_parts(impl_, "gather", "output", output, "input", input);
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::gather, input);
  d.root = root;
  return issue(impl_, context, async, d, input.numel(),
               [input, output](Exchange& exchange, const Access& access, std::byte*) {
                 direct::gather(exchange, address(access, input), address(access, output),
                                input.numel());
               });
}

Work ProcessGroup::scatter(Context& context, const Tensor& input, const Tensor& output, int root,
                           Async async) const {
  need(impl_, "scatter", "output", output);
  need_member(impl_, "scatter", "root", root);
  if (rank() == root) need_parts(impl_, "scatter", "input", input, "output", output);
  if (size() == 1) return copy_own(context, input, output);
  Descriptor d = describe(impl_, Operation::scatter, output);
  d.root = root;
  return issue(impl_, context, async, d, output.numel(),
               [input, output](Exchange& exchange, const Access& access, std::byte*) {
                 direct::scatter(exchange, address(access, input), address(access, output),
                                 output.numel());
               });
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
  return issue(impl_, context, async, describe(impl_, Operation::all_to_all, input), input.numel(),
               [input, output, n = input.numel() / size()](Exchange& exchange, const Access& access,
                                                           std::byte*) {
                 direct::all_to_all(exchange, address(access, input), address(access, output), n);
               });
}

void ProcessGroup::barrier(Context& context) const {
  need(impl_, "barrier");
  if (size() > 1) {
    Descriptor d;
    d.group = impl_->membership.id;
    d.operation = Operation::barrier;
    issue(impl_, context, Async::no, d, 0,
          [](Exchange& exchange, const Access&, std::byte*) { direct::barrier(exchange); });
  }
  context.synchronize();
}

}  // namespace trident
