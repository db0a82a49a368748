// NCCL between emulated GPUs. A stream that reaches an operation waits there for its peers'
// streams. Reductions add in reverse order of the ranks, as no code may rely on their order. A
// non-blocking communicator's calls do their work only when its state is queried.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reduce.h"

namespace {

using trident::DType;

// The state that the members of a communicator share.
struct World {
  explicit World(int n) : ranks(n) {}
  struct Message {
    const void* data;
    std::size_t bytes;
    bool taken = false;
  };
  int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
  std::vector<int> devices;  // of the members that have opened it
  bool two_on_a_device = false;
  // A split: the request of each member. The parts are made once all have asked.
  struct Split {
    struct Asked {
      int rank, color, key, device;
      ncclComm_t* part;
    };
    std::vector<Asked> asked;
  };
  Split split;
  // Messages in flight by (sender, receiver), in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
};

std::mutex registry_mutex;
std::map<std::string, std::weak_ptr<World>> registry;
std::atomic<int> unique_ids{0}, splits{0};

struct Call {
  bool sends;
  int peer;
  void* data;
  std::size_t bytes;
};

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}
DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
      return DType::i32;
    case ncclInt64:
      return DType::i64;
    case ncclFloat16:
      return DType::f16;
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat32:
      return DType::f32;
    case ncclFloat64:
      return DType::f64;
    default:
      return DType::u8;
  }
}
trident::ReduceOp op_of(ncclRedOp_t op) {
  using trident::ReduceOp;
  return op == ncclSum    ? ReduceOp::sum
         : op == ncclProd ? ReduceOp::product
         : op == ncclMax  ? ReduceOp::maximum
         : op == ncclMin  ? ReduceOp::minimum
                          : ReduceOp::average;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  std::deque<std::function<void()>> put_off;
  bool splits = false;  // a split waits for the other members
};

namespace {

std::atomic<emulation::NcclFault> fault{emulation::NcclFault::none};
std::atomic<int> communicators{0};

ncclResult_t start(ncclComm_t communicator, cudaStream_t stream, std::function<void()> work) {
  int device = 0;
  cudaGetDevice(&device);
  communicator->put_off.push_back([device, stream, work = std::move(work)] {
    cudaSetDevice(device);
    emulation::enqueue(stream, work);
  });
  return ncclInProgress;
}

// Carries out all messages of a group at once, so that none waits for another.
void carry_out(const std::shared_ptr<World>& world, int rank, const std::vector<Call>& calls) {
  std::unique_lock lock(world->mutex);
  std::vector<std::shared_ptr<World::Message>> sent;
  for (const Call& call : calls) {
    if (!call.sends) continue;
    sent.push_back(std::make_shared<World::Message>(World::Message{call.data, call.bytes}));
    world->messages[{rank, call.peer}].push_back(sent.back());
  }
  world->changed.notify_all();
  for (const Call& call : calls) {
    if (call.sends) continue;
    auto& queue = world->messages[{call.peer, rank}];
    world->changed.wait(lock, [&] { return !queue.empty() || world->aborted; });
    if (world->aborted) return;
    const auto message = queue.front();
    queue.pop_front();
    std::memcpy(call.data, message->data, std::min(call.bytes, message->bytes));
    message->taken = true;
    world->changed.notify_all();
  }
  for (const auto& message : sent) {
    world->changed.wait(lock, [&] { return message->taken || world->aborted; });
  }
}

struct Group {
  int depth = 0;
  std::vector<Call> calls;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Group group;

ncclResult_t put(ncclComm_t communicator, cudaStream_t stream, std::vector<Call> calls) {
  const auto world = communicator->world;
  const int rank = communicator->rank;
  return start(communicator, stream,
               [world, rank, calls = std::move(calls)] { carry_out(world, rank, calls); });
}

ncclResult_t call(ncclComm_t communicator, cudaStream_t stream, Call one) {
  if (group.depth == 0) return put(communicator, stream, {one});
  if (group.communicator != nullptr &&
      (group.communicator != communicator || group.stream != stream)) {
    return ncclInvalidUsage;  // real NCCL allows it; our code doesn't use it
  }
  group.communicator = communicator;
  group.stream = stream;
  group.calls.push_back(one);
  return ncclSuccess;
}

// Waits until every member has given `bytes` at `input`, in rank order, and then calls `finish`.
ncclResult_t collect(ncclComm_t communicator, cudaStream_t stream, const void* input,
                     std::size_t bytes,
                     std::function<void(const std::vector<const void*>&)> finish) {
  const auto world = communicator->world;
  const int rank = communicator->rank;
  return start(communicator, stream, [world, rank, input, bytes, finish = std::move(finish)] {
    const auto all = static_cast<std::size_t>(world->ranks);
    std::vector<std::vector<std::byte>> values(all, std::vector<std::byte>(bytes));
    std::vector<Call> calls;
    for (int r = 0; r < world->ranks; ++r) {
      if (r == rank) continue;
      calls.push_back({true, r, const_cast<void*>(input), bytes});
      calls.push_back({false, r, values[static_cast<std::size_t>(r)].data(), bytes});
    }
    if (bytes > 0) std::memcpy(values[static_cast<std::size_t>(rank)].data(), input, bytes);
    carry_out(world, rank, calls);
    {
      const std::lock_guard lock(world->mutex);
      if (world->aborted) return;
    }
    std::vector<const void*> sources;
    for (const auto& one : values) sources.push_back(one.data());
    finish(sources);
  });
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "emulated NCCL error";
}
const char* ncclGetLastError(ncclComm_t communicator) {
  if (communicator == nullptr || !communicator->world->two_on_a_device) return "";
  return "Duplicate GPU detected";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22800;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(registry_mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "emulated %d", ++unique_ids);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= ranks || config->blocking != 0) return ncclInvalidArgument;
  const std::lock_guard lock(registry_mutex);
  auto& known = registry[id.internal];
  std::shared_ptr<World> world = known.lock();
  if (world == nullptr) known = world = std::make_shared<World>(ranks);
  if (world->ranks != ranks) return ncclInvalidUsage;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard world_lock(world->mutex);
  for (const int other : world->devices) world->two_on_a_device |= other == device;
  world->devices.push_back(device);
  *communicator = new ncclComm{world, rank, {}};
  ++communicators;
  return ncclInProgress;
}
// The parts exist once all members have asked. Until then the parent is in progress.
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  if (config->blocking != 0 || color < NCCL_SPLIT_NOCOLOR) return ncclInvalidArgument;
  World& world = *parent->world;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(world.mutex);
  if (!parent->put_off.empty() || parent->splits) return ncclInvalidUsage;
  *part = nullptr;
  world.split.asked.push_back({parent->rank, color, key, device, part});
  parent->splits = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  --communicators;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  {
    World& world = *communicator->world;
    const std::lock_guard lock(world.mutex);
    world.aborted = true;
    // The caller may free the place where its part would be stored.
    std::erase_if(world.split.asked, [&](const World::Split::Asked& asked) {
      return asked.rank == communicator->rank;
    });
  }
  communicator->world->changed.notify_all();
  delete communicator;
  --communicators;
  return ncclSuccess;
}
namespace {
// Splits a world whose members have all asked. The caller holds its mutex.
void carry_out_split(World& world) {
  std::vector<World::Split::Asked> asked = std::exchange(world.split.asked, {});
  std::sort(asked.begin(), asked.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.color, a.key, a.rank) < std::tuple(b.color, b.key, b.rank);
  });
  for (std::size_t begin = 0, end = 0; begin < asked.size(); begin = end) {
    while (end < asked.size() && asked[end].color == asked[begin].color) ++end;
    if (asked[begin].color == NCCL_SPLIT_NOCOLOR) continue;
    const auto part = std::make_shared<World>(static_cast<int>(end - begin));
    for (std::size_t i = begin; i < end; ++i) {
      part->devices.push_back(asked[i].device);
      *asked[i].part = new ncclComm{part, static_cast<int>(i - begin), {}};
      ++communicators;
    }
  }
  ++splits;
}
}  // namespace

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  World& world = *communicator->world;
  const std::lock_guard lock(world.mutex);
  if (communicator->splits && !world.aborted) {
    const auto asks = [&](const World::Split::Asked& a) { return a.rank == communicator->rank; };
    if (static_cast<int>(world.split.asked.size()) == world.ranks) carry_out_split(world);
    communicator->splits = std::any_of(world.split.asked.begin(), world.split.asked.end(), asks);
    if (communicator->splits) {
      *error = ncclInProgress;
      return ncclSuccess;
    }
  }
  const bool all_here = static_cast<int>(world.devices.size()) == world.ranks &&
                        fault != emulation::NcclFault::opening_never_ends;
  *error = world.aborted                                        ? ncclRemoteError
           : world.two_on_a_device                              ? ncclInvalidUsage
           : all_here && fault == emulation::NcclFault::network ? ncclSystemError
           : all_here && communicator->put_off.empty()          ? ncclSuccess
                                                                : ncclInProgress;
  if (all_here && !communicator->put_off.empty()) {
    communicator->put_off.front()();
    communicator->put_off.pop_front();
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group.depth > 0 || group.calls.empty()) return ncclSuccess;
  const Group all = std::exchange(group, Group{});
  return put(all.communicator, all.stream, all.calls);
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call(communicator, stream, {true, peer, const_cast<void*>(data), count * size_of(type)});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call(communicator, stream, {false, peer, data, count * size_of(type)});
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return collect(communicator, stream, input, count * size_of(type),
                 [=](std::vector<const void*> sources) {
                   std::vector<const void*> reversed(sources.rbegin(), sources.rend());
                   trident::reduce(output, reversed, static_cast<std::int64_t>(count),
                                   dtype_of(type), op_of(op), static_cast<int>(reversed.size()));
                 });
}
ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
                               cudaStream_t stream) {
  const int ranks = communicator->world->ranks, rank = communicator->rank;
  return collect(communicator, stream, input,
                 count * size_of(type) * static_cast<std::size_t>(ranks),
                 [=](std::vector<const void*> sources) {
                   std::vector<const void*> reversed(sources.rbegin(), sources.rend());
                   for (const void*& source : reversed) {
                     source = static_cast<const std::byte*>(source) +
                              count * size_of(type) * static_cast<std::size_t>(rank);
                   }
                   trident::reduce(output, reversed, static_cast<std::int64_t>(count),
                                   dtype_of(type), op_of(op), ranks);
                 });
}
ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collect(communicator, stream, input, bytes, [=](const std::vector<const void*>& sources) {
    for (std::size_t r = 0; r < sources.size(); ++r) {
      if (bytes > 0) std::memmove(static_cast<std::byte*>(output) + r * bytes, sources[r], bytes);
    }
  });
}
ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collect(communicator, stream, input, bytes, [=](const std::vector<const void*>& sources) {
    if (bytes > 0) std::memmove(output, sources[static_cast<std::size_t>(root)], bytes);
  });
}

namespace emulation {
void set_nccl_fault(NcclFault value) {
  fault = value;
}
int nccl_communicators() {
  return communicators;
}
int nccl_splits() {
  return splits;
}
int nccl_unique_ids() {
  return unique_ids;
}
}  // namespace emulation
