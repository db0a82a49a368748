#include "parallel/transport/nccl/nccl.h"

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/queue.h"
#include "parallel/collectives/communicator.h"

namespace trident {
namespace {

std::string text_of(ncclResult_t result, ncclComm_t communicator = nullptr) {
  const char* const last = ncclGetLastError(communicator);
  return std::string(ncclGetErrorString(result)) +
         (last == nullptr || *last == 0 ? "" : " (" + std::string(last) + ")");
}

void check(ncclResult_t result, const std::string& what, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw CommunicationError("nccl: " + what + ": " + text_of(result, communicator));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

class NcclCommunicator;

// Looks after the communicators of a rank: an error of NCCL's, an operation that doesn't end in
// time, or the end of all ranks aborts them, so that no queue stands still for ever.
class Watch {
 public:
  explicit Watch(std::shared_ptr<Endpoint> host)
      : host_(std::move(host)), thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  void add(NcclCommunicator* communicator) {
    const std::lock_guard lock(mutex_);
    all_.push_back(communicator);
  }
  void remove(NcclCommunicator* communicator) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, communicator);
  }
  Endpoint& host() { return *host_; }

 private:
  void run();
  void abort_all();

  std::shared_ptr<Endpoint> host_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<NcclCommunicator*> all_;
  std::thread thread_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Watch> watch, std::string name, const ncclUniqueId& id,
                   int ranks, int rank, Device& device)
      : watch_(std::move(watch)), name_(std::move(name)), device_(device) {
    // The device becomes the calling thread's.
    const auto here = device.make_event();
    // Its calls return before they have done their work, so that a peer that never comes stops
    // none.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      demand(ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config), opening);
      settle(opening);
    } catch (...) {
      if (communicator_ != nullptr) ncclCommAbort(communicator_);
      throw;
    }
    watch_->add(this);
  }
  ~NcclCommunicator() override {
    watch_->remove(this);
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return;
    // Nobody watches it any more: what has not ended must not be waited for.
    ncclResult_t state = ncclSuccess;
    const bool sound = ncclCommGetAsyncError(communicator_, &state) == ncclSuccess &&
                       state == ncclSuccess &&
                       (under_way_.empty() || under_way_.back().end->reached());
    sound ? ncclCommDestroy(communicator_) : ncclCommAbort(communicator_);
  }

  // NaNs: what NCCL makes of minimum and maximum is not said. Bits: it has no such operations.
  bool reduces(ReduceOp op, DType) const override {
    return op == ReduceOp::sum || op == ReduceOp::average;
  }
  void all_reduce(const Access& access, void* data, std::int64_t n, DType dtype,
                  ReduceOp op) override {
    run(access, "all_reduce", [&](ncclComm_t c, cudaStream_t stream) {
      return ncclAllReduce(data, data, static_cast<std::size_t>(n), type_of(dtype), operation(op),
                           c, stream);
    });
  }
  void reduce_scatter(const Access& access, const void* input, void* output, std::int64_t n,
                      DType dtype, ReduceOp op) override {
    run(access, "reduce_scatter", [&](ncclComm_t c, cudaStream_t stream) {
      return ncclReduceScatter(input, output, static_cast<std::size_t>(n), type_of(dtype),
                               operation(op), c, stream);
    });
  }
  void all_gather(const Access& access, const void* input, void* output,
                  std::size_t bytes) override {
    run(access, "all_gather", [&](ncclComm_t c, cudaStream_t stream) {
      return ncclAllGather(input, output, bytes, ncclUint8, c, stream);
    });
  }
  void broadcast(const Access& access, void* data, std::size_t bytes, int root) override {
    run(access, "broadcast", [&](ncclComm_t c, cudaStream_t stream) {
      return ncclBroadcast(data, data, bytes, ncclUint8, root, c, stream);
    });
  }
  void exchange(const Access& access, std::span<const Part> sends,
                std::span<const Part> receives) override {
    run(access, "messages", [&](ncclComm_t c, cudaStream_t stream) {
      check(ncclGroupStart(), place("a group of messages"));
      ncclResult_t result = ncclSuccess;
      for (const Part& part : sends) {
        if (result != ncclSuccess || part.bytes == 0) continue;
        result = ncclSend(part.data, part.bytes, ncclUint8, part.peer, c, stream);
      }
      for (const Part& part : receives) {
        if (result != ncclSuccess || part.bytes == 0) continue;
        result = ncclRecv(part.data, part.bytes, ncclUint8, part.peer, c, stream);
      }
      const ncclResult_t end = ncclGroupEnd();
      return result == ncclSuccess ? end : result;
    });
  }

  // For the watch. What is wrong, or nothing.
  std::string problem() {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return "";
    ncclResult_t result = ncclSuccess;
    if (ncclCommGetAsyncError(communicator_, &result) != ncclSuccess ||
        (result != ncclSuccess && result != ncclInProgress)) {
      return place("an operation") + ": " + text_of(result, communicator_);
    }
    while (!under_way_.empty() && under_way_.front().end->reached()) under_way_.pop_front();
    if (!under_way_.empty() && std::chrono::steady_clock::now() > under_way_.front().deadline) {
      return late(under_way_.front().what);
    }
    return "";
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
  }

 private:
  struct UnderWay {
    std::unique_ptr<DeviceEvent> end;
    Deadline deadline;
    const char* what;
  };

  static constexpr const char* opening = "a communicator";
  static ncclRedOp_t operation(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : ncclAvg; }
  std::string place(const std::string& what) const { return "group '" + name_ + "': " + what; }

  // What all ranks were ended for comes before what NCCL makes of it; a peer's end may be known to
  // NCCL before the hosts have told of it.
  void demand(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const Deadline end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    do {
      watch_->host().check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (result == ncclRemoteError && std::chrono::steady_clock::now() < end);
    check(result, place(what), communicator_);
  }

  // Until what was called is in its queue.
  void settle(const char* what) const {
    const Deadline end = std::chrono::steady_clock::now() + watch_->host().options().timeout;
    while (true) {
      ncclResult_t state = ncclSuccess;
      demand(ncclCommGetAsyncError(communicator_, &state), what);
      if (state != ncclInProgress) return demand(state, what);
      watch_->host().check();
      if (std::chrono::steady_clock::now() > end) {
        throw CommunicationError("nccl: " + late(what));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  std::string late(const char* what) const {
    return place(what) + " did not end in " +
           std::to_string(watch_->host().options().timeout.count()) + " ms";
  }

  template <class Call>
  void run(const Access& access, const char* what, const Call& call) {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) {
      watch_->host().check();
      throw CommunicationError("nccl: " + place(what) + ": the communicator was aborted");
    }
    demand(call(communicator_, cuda::queue_of(access).stream), what);
    settle(what);
    while (under_way_.size() > 1 && under_way_.front().end->reached()) under_way_.pop_front();
    auto end = device_.make_event();
    end->record(access);
    under_way_.push_back({std::move(end),
                          std::chrono::steady_clock::now() + watch_->host().options().timeout,
                          what});
  }

  std::shared_ptr<Watch> watch_;
  std::string name_;
  Device& device_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // null: aborted
  std::deque<UnderWay> under_way_;     // in order of issue
};

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, std::chrono::milliseconds(50));
    if (stop_) return;
    try {
      host_->check();
    } catch (const std::exception&) {
      for (NcclCommunicator* const one : all_) one->abort();
      continue;
    }
    for (NcclCommunicator* const one : all_) {
      const std::string problem = one->problem();
      if (problem.empty()) continue;
      host_->fail(std::make_exception_ptr(CommunicationError("nccl: " + problem)));
      for (NcclCommunicator* const other : all_) other->abort();
      break;
    }
  }
}

class NcclEndpoint final : public Endpoint {
 public:
  explicit NcclEndpoint(std::shared_ptr<Endpoint> host)
      : host_(host), watch_(std::make_shared<Watch>(std::move(host))) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int ranks_per_node() const override { return host_->ranks_per_node(); }
  const TransportOptions& options() const override { return host_->options(); }
  void open_group(std::uint64_t id, const std::string& name) override {
    host_->open_group(id, name);
  }
  std::unique_ptr<Request> post_send(int peer, int channel, const Descriptor& descriptor,
                                     const void* data, std::size_t bytes,
                                     std::shared_ptr<QueueSide>) override {
    return host_->post_send(peer, channel, descriptor, data, bytes, nullptr);
  }
  std::unique_ptr<Request> post_receive(int peer, int channel, const Descriptor& expected,
                                        void* data, std::size_t bytes,
                                        std::shared_ptr<QueueSide>) override {
    return host_->post_receive(peer, channel, expected, data, bytes, nullptr);
  }
  std::unique_ptr<Request> post_receive_view(int peer, int channel, const Descriptor& expected,
                                             void* staging, std::size_t bytes) override {
    return host_->post_receive_view(peer, channel, expected, staging, bytes);
  }
  bool needs_staging() const override { return true; }
  bool reaches_gpus() const override { return true; }
  void check() const override { host_->check(); }
  void fail(std::exception_ptr error) noexcept override { host_->fail(error); }
  void abort(const std::string& reason) noexcept override { host_->abort(reason); }

  bool has_communicators() const override { return true; }
  std::vector<std::byte> communicator_key() override {
    ncclUniqueId id;
    trident::check(ncclGetUniqueId(&id), "a unique id");
    const auto* const bytes = reinterpret_cast<const std::byte*>(&id);
    return {bytes, bytes + sizeof id};
  }
  std::shared_ptr<Communicator> open_communicator(const std::vector<std::byte>& key,
                                                  const std::string& name, int ranks, int rank,
                                                  Device& device) override {
    ncclUniqueId id;
    std::memcpy(&id, key.data(), sizeof id);
    return std::make_shared<NcclCommunicator>(watch_, name, id, ranks, rank, device);
  }

 private:
  std::shared_ptr<Endpoint> host_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace

std::shared_ptr<Endpoint> with_nccl(std::shared_ptr<Endpoint> host) {
  return std::make_shared<NcclEndpoint>(std::move(host));
}

}  // namespace trident
