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

#include "base/error.h"
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

// The number of thread blocks that a kernel for messages may take. Several of these kernels run
// concurrently with each other and with products, and NCCL's buffers grow with this number.
constexpr int message_blocks = 8;

ncclConfig_t config_of(Carries carries) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Calls return before they have done their work, so that a peer that never comes blocks none of
  // them.
  config.blocking = 0;
  if (carries == Carries::messages) config.maxCTAs = message_blocks;
  return config;
}

// Watches the communicators of a rank. An error of NCCL's, an operation that doesn't end in time,
// or the end of all ranks aborts them, so that no queue stands still for ever.
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
                   int ranks, int rank, Device& device, Carries carries)
      : watch_(std::move(watch)), name_(std::move(name)), device_(device) {
    open([&] {
      ncclConfig_t config = config_of(carries);
      check_or_abort_reason(ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config),
                            opening);
    });
  }
  // Takes over an existing communicator of NCCL's.
  NcclCommunicator(std::shared_ptr<Watch> watch, std::string name, ncclComm_t part, Device& device)
      : watch_(std::move(watch)), name_(std::move(name)), device_(device) {
    open([&] { communicator_ = part; });
  }
  ~NcclCommunicator() override {
    // Operations in flight are still wanted, but only within the timeout.
    while (!finished()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    watch_->remove(this);
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return;
    // The watch does not check this communicator any more.
    ncclResult_t state = ncclSuccess;
    const bool sound = ncclCommGetAsyncError(communicator_, &state) == ncclSuccess &&
                       state == ncclSuccess && (under_way_.empty() || ended(under_way_.back()));
    sound ? ncclCommDestroy(communicator_) : ncclCommAbort(communicator_);
  }

  std::shared_ptr<Communicator> split(int color, int key, const std::string& name) override {
    ncclComm_t part = nullptr;
    {
      const std::lock_guard lock(mutex_);
      need_open("a split");
      // The communicators share no resources. Kernels of communicators that do run one after the
      // other, and a message would hold up the operation that it waits for.
      ncclConfig_t config = config_of(Carries::collectives);
      try {
        check_or_abort_reason(ncclCommSplit(communicator_, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                                            key, &part, &config),
                              opening);
        wait_until_enqueued(opening);
      } catch (...) {
        // NCCL's own thread stores the part when it is done with it; the abort waits for that.
        ncclCommAbort(std::exchange(communicator_, nullptr));
        if (part != nullptr) ncclCommAbort(part);
        throw;
      }
    }
    if (color < 0) return nullptr;
    return std::make_shared<NcclCommunicator>(watch_, name, part, device_);
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

  // For the watch: the problem of this communicator, or "". It is "", too, while a call is being
  // made, which has a limit of its own.
  std::string problem() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || communicator_ == nullptr) return "";
    ncclResult_t result = ncclSuccess;
    if (ncclCommGetAsyncError(communicator_, &result) != ncclSuccess ||
        (result != ncclSuccess && result != ncclInProgress)) {
      return place("an operation") + ": " + text_of(result, communicator_);
    }
    while (!under_way_.empty() && under_way_.front().end->reached()) under_way_.pop_front();
    if (!under_way_.empty() && under_way_.front().countdown.over()) {
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
    Countdown countdown;
    const char* what;
  };

  template <class Make>
  void open(const Make& make) {
    const auto here = device_.make_event();  // makes the device the calling thread's
    try {
      make();
      if (communicator_ != nullptr) wait_until_enqueued(opening);
    } catch (...) {
      if (communicator_ != nullptr) ncclCommAbort(communicator_);
      throw;
    }
    watch_->add(this);
  }
  void need_open(const char* what) const {
    if (communicator_ != nullptr) return;
    watch_->host().check();
    throw CommunicationError("nccl: " + place(what) + ": the communicator was aborted");
  }
  // Whether nothing is in flight. True, too, where an operation has failed or is late: the watch
  // then ends all ranks.
  bool finished() const noexcept {
    try {
      watch_->host().check();
      const std::lock_guard lock(mutex_);
      return communicator_ == nullptr || under_way_.empty() || under_way_.back().end->reached();
    } catch (const std::exception&) {
      return true;
    }
  }
  static bool ended(const UnderWay& one) noexcept {
    try {
      return one.end->reached();
    } catch (const std::exception&) {
      return false;  // the device has failed
    }
  }

  static constexpr const char* opening = "a communicator";
  static ncclRedOp_t operation(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : ncclAvg; }
  std::string place(const std::string& what) const { return "group '" + name_ + "': " + what; }

  // Throws if `result` is an error. The reason for which all ranks were ended precedes NCCL's own
  // error. NCCL may know of a peer's end before the hosts have reported it, so this waits a while
  // for the hosts.
  void check_or_abort_reason(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    Countdown patience{std::chrono::seconds(1)};
    do {
      watch_->host().check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (result == ncclRemoteError && !patience.over());
    check(result, place(what), communicator_);
  }

  // Waits until the called operation is in its queue.
  void wait_until_enqueued(const char* what) const {
    Countdown countdown = watch_->host().countdown();
    for (int looks = 0;; ++looks) {
      ncclResult_t state = ncclSuccess;
      check_or_abort_reason(ncclCommGetAsyncError(communicator_, &state), what);
      if (state != ncclInProgress) return check_or_abort_reason(state, what);
      watch_->host().check();
      if (countdown.over()) {
        throw CommunicationError("nccl: " + late(what));
      }
      // Most calls take less time than a sleep.
      looks < 200 ? std::this_thread::yield()
                  : std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  std::string late(const char* what) const {
    return place(what) + " did not end in " +
           std::to_string(watch_->host().options().timeout.count()) + " ms";
  }

  template <class Call>
  void run(const Access& access, const char* what, const Call& call) {
    const std::lock_guard lock(mutex_);
    need_open(what);
    check_or_abort_reason(call(communicator_, cuda::queue_of(access).stream), what);
    wait_until_enqueued(what);
    while (under_way_.size() > 1 && under_way_.front().end->reached()) under_way_.pop_front();
    auto end = device_.make_event();
    end->record(access);
    under_way_.push_back({std::move(end), watch_->host().countdown(), what});
  }

  std::shared_ptr<Watch> watch_;
  std::string name_;
  Device& device_;
  mutable std::mutex mutex_;
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
      abort_all();
      continue;
    }
    for (NcclCommunicator* const one : all_) {
      std::exception_ptr error;
      try {
        const std::string problem = one->problem();
        if (problem.empty()) continue;
        error = std::make_exception_ptr(CommunicationError("nccl: " + problem));
      } catch (const std::exception&) {
        error = std::current_exception();  // the device's error
      }
      host_->fail(error);
      abort_all();
      break;
    }
  }
}

// Aborts all communicators at once: a thread inside one may wait for a kernel of another.
void Watch::abort_all() {
  std::vector<std::thread> threads;
  for (NcclCommunicator* const one : all_) threads.emplace_back([one] { one->abort(); });
  for (std::thread& thread : threads) thread.join();
}

class NcclLibrary final : public CommunicatorLibrary {
 public:
  explicit NcclLibrary(std::shared_ptr<Endpoint> host)
      : watch_(std::make_shared<Watch>(std::move(host))) {}
  std::size_t key_bytes() const override { return sizeof(ncclUniqueId); }
  std::vector<std::byte> make_key() override {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "a unique id");
    const auto* const bytes = reinterpret_cast<const std::byte*>(&id);
    return {bytes, bytes + sizeof id};
  }
  std::shared_ptr<Communicator> open(const std::vector<std::byte>& key, const std::string& name,
                                     int ranks, int rank, Device& device,
                                     Carries carries) override {
    ncclUniqueId id;
    std::memcpy(&id, key.data(), sizeof id);
    return std::make_shared<NcclCommunicator>(watch_, name, id, ranks, rank, device, carries);
  }
  bool reduces(ReduceOp op) const override {
    return nccl_reduces(op, watch_->host().options().deterministic);
  }

 private:
  std::shared_ptr<Watch> watch_;
};

}  // namespace

std::shared_ptr<CommunicatorLibrary> make_nccl(std::shared_ptr<Endpoint> host) {
  return std::make_shared<NcclLibrary>(std::move(host));
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace trident
