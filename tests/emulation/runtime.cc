// Streams, events and memory of the emulated GPU.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulation/grid.h"

namespace {

using Clock = std::chrono::steady_clock;

std::size_t number(const char* name, std::size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The progress of a stream, which outlives the stream.
struct Progress {
  void wait_for_all() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this, all = pushed] { return done >= all; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t pushed = 0, done = 0;
};

struct Machine {
  std::mutex mutex;
  int devices = static_cast<int>(number("TRIDENT_EMULATED_GPUS", 1));
  std::size_t bytes_each = number("TRIDENT_EMULATED_GPU_BYTES", std::size_t{8} << 30);
  std::size_t allocations = 0;
  std::map<int, std::size_t> used;                      // by device
  std::map<void*, std::pair<int, std::size_t>> blocks;  // device and size
  std::multimap<int, std::weak_ptr<Progress>> streams;  // by device
};
Machine& machine() {
  static Machine it;
  return it;
}
constexpr std::size_t shared_bytes_of_block = 40 << 10;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace

struct CUstream_st {
  CUstream_st() : thread([this] { run(); }) {
    const std::lock_guard lock(machine().mutex);
    std::erase_if(machine().streams, [](const auto& entry) { return entry.second.expired(); });
    machine().streams.emplace(device, progress);
  }
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    thread.join();
  }
  void push(std::function<void()> work) {
    {
      const std::scoped_lock lock(mutex, progress->mutex);
      queue.push_back(std::move(work));
      ++progress->pushed;
    }
    wake.notify_one();
  }
  cudaError_t synchronize() {
    progress->wait_for_all();
    return failed ? cudaErrorLaunchFailure : cudaSuccess;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return stop || !queue.empty(); });
      if (queue.empty()) return;
      auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      try {
        work();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "emulated GPU: %s\n", error.what());
        failed = true;
      }
      work = nullptr;
      {
        const std::lock_guard done(progress->mutex);
        ++progress->done;
      }
      progress->changed.notify_all();
      lock.lock();
    }
  }

  int device = current_device;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> queue;
  bool stop = false;
  std::atomic<bool> failed = false;
  std::thread thread;
};

// The last record of an event. A waiter waits for this record, even if the event is recorded again.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  Clock::time_point time;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    time = Clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
};
struct CUevent_st {
  std::shared_ptr<Record> last() {
    const std::lock_guard lock(mutex);
    return record;
  }
  std::mutex mutex;
  std::shared_ptr<Record> record;  // null: never recorded
  bool timed = true;
};

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "?";
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(machine().mutex);
  *count = std::max(0, machine().devices);
  if (machine().devices < 0) return answer(cudaErrorInsufficientDriver);
  return machine().devices == 0 ? answer(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const bool block = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin;
  *value = static_cast<int>(block ? shared_bytes_of_block : 3 * shared_bytes_of_block / 2);
  return cudaSuccess;
}
// The attribute belongs to a kernel on a device. Real devices refuse larger values, too.
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  const bool fits = value >= 0 && static_cast<std::size_t>(value) <= shared_bytes_of_block;
  return fits ? cudaSuccess : answer(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static std::set<std::pair<int, int>> enabled;
  const std::lock_guard lock(machine().mutex);
  return answer(enabled.emplace(current_device, peer).second ? cudaSuccess
                                                             : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(machine().mutex);
  *version = machine().devices < 0 ? 0 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const std::lock_guard lock(machine().mutex);
  if (device < 0 || device >= machine().devices) return answer(cudaErrorInvalidDevice);
  *properties = {"emulated GPU", machine().bytes_each, 0, 0, 1};
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (bytes > m.bytes_each - m.used[current_device]) return answer(cudaErrorMemoryAllocation);
  *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*address == nullptr) return answer(cudaErrorMemoryAllocation);
  std::memset(*address, 0xff, bytes);  // NaN in every format
  ++m.allocations;
  m.used[current_device] += bytes;
  m.blocks[*address] = {current_device, bytes};
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  Machine& m = machine();
  // Like the real one, it waits for the work enqueued so far on the device's streams.
  std::vector<std::shared_ptr<Progress>> streams;
  {
    const std::lock_guard lock(m.mutex);
    const auto block = m.blocks.find(address);
    if (block == m.blocks.end()) return answer(cudaErrorInvalidValue);
    const auto [first, last] = m.streams.equal_range(block->second.first);
    for (auto stream = first; stream != last; ++stream) {
      if (auto progress = stream->second.lock()) streams.push_back(std::move(progress));
    }
  }
  for (const auto& progress : streams) progress->wait_for_all();
  const std::lock_guard lock(m.mutex);
  const auto block = m.blocks.find(address);
  m.used[block->second.first] -= block->second.second;
  m.blocks.erase(block);
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *total = m.bytes_each;
  *free = m.bytes_each - m.used[current_device];
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return answer(stream->synchronize());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (auto record = event->last()) stream->push([record] { record->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = flags != cudaEventDisableTiming;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto record = std::make_shared<Record>();
  {
    const std::lock_guard lock(event->mutex);
    event->record = record;
  }
  stream->push([record] { record->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto record = event->last();
  if (record == nullptr) return cudaSuccess;
  const std::lock_guard lock(record->mutex);
  return record->reached ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto record = event->last()) record->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto from = begin->last(), to = end->last();
  if (!begin->timed || !end->timed || from == nullptr || to == nullptr) {
    return answer(cudaErrorInvalidValue);
  }
  if (cudaEventQuery(begin) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) {
    return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}

namespace emulation {

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->device != current_device) return answer(cudaErrorInvalidValue);
  stream->push(std::move(work));
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const dim3 blocks = config.gridDim, threads = config.blockDim;
  const unsigned count = threads.x * threads.y * threads.z;
  // These are the limits of real devices.
  if (count == 0 || count > 1024 || blocks.x == 0 || blocks.x > 0x7fffffffu || blocks.y == 0 ||
      blocks.y > 65535 || blocks.z == 0 || blocks.z > 65535) {
    return answer(cudaErrorInvalidValue);
  }
  if (config.dynamicSmemBytes > shared_bytes_of_block) return answer(cudaErrorInvalidValue);
  return enqueue(config.stream,
                 [blocks, threads, bytes = config.dynamicSmemBytes, thread = std::move(thread)] {
                   run_grid(blocks, threads, bytes, thread);
                 });
}

void set_machine(int devices, std::size_t bytes_each) {
  const std::lock_guard lock(machine().mutex);
  machine().devices = devices;
  machine().bytes_each = bytes_each;
}
std::size_t allocations() {
  const std::lock_guard lock(machine().mutex);
  return machine().allocations;
}
std::size_t allocated_bytes() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  std::size_t bytes = 0;
  for (const auto& [device, used] : m.used) bytes += used;
  return bytes;
}

}  // namespace emulation
