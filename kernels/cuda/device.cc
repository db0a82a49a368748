// GPUs as devices and their in-order queues as streams.
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <optional>
#include <regex>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda_device.h"

namespace trident {
namespace cuda {
namespace {

constexpr std::size_t staging_bytes = std::size_t{4} << 20;

class CudaStream final : public Stream {
 public:
  explicit CudaStream(std::unique_ptr<Queue> queue)
      : Stream(true, Access::to_queue(queue.get())), queue_(std::move(queue)) {}
  ~CudaStream() override {
    if (cudaSetDevice(queue_->device) != cudaSuccess) return;
    cudaStreamSynchronize(queue_->stream);
    cudaStreamDestroy(queue_->stream);
  }

  void synchronize() override {
    check(cudaSetDevice(queue_->device), "cudaSetDevice");
    check(cudaStreamSynchronize(queue_->stream), "cudaStreamSynchronize");
    if (downloads_) downloads_->deliver();
    if (marks_used_ == 0) return;
    for (std::size_t i = 0; i < marks_used_; ++i) {
      const auto after =
          static_cast<std::int64_t>(marks_[i].event.milliseconds_since(*origin_) * 1e6);
      *marks_[i].slot = {origin_ns_ + after, origin_ns_ + after};
    }
    marks_used_ = 0;
    set_origin();  // event times are floats: a new origin keeps them small
  }

  void write(void* to, std::span<const std::byte> from) override {
    check(cudaSetDevice(queue_->device), "cudaSetDevice");
    if (!uploads_) uploads_.emplace(staging_bytes);
    uploads_->copy(*queue_, to, from);
  }
  void read(std::span<std::byte> to, const void* from) override {
    check(cudaSetDevice(queue_->device), "cudaSetDevice");
    if (!downloads_) downloads_.emplace(staging_bytes);
    downloads_->copy(*queue_, to, from);
  }
  void mark(ClockReading& slot) override {
    check(cudaSetDevice(queue_->device), "cudaSetDevice");
    if (!origin_) set_origin();
    if (marks_used_ == marks_.size()) marks_.emplace_back();
    Mark& mark = marks_[marks_used_++];
    mark.slot = &slot;
    mark.event.record(*queue_);
  }

 private:
  struct Mark {
    Event event{true};
    ClockReading* slot = nullptr;
  };

  void push(Work work) override { work(Access::to_queue(queue_.get())); }

  void set_origin() {
    if (!origin_) origin_.emplace(true);
    origin_->record(*queue_);
    origin_->synchronize();
    origin_ns_ = read_clock().wall_ns;
  }

  std::unique_ptr<Queue> queue_;
  // Created at their first use. A queue for communication stages nothing and has no clock; pinned
  // memory is slow to allocate and may stall the device.
  std::optional<UploadRing> uploads_;
  std::optional<Downloads> downloads_;
  std::optional<Event> origin_;
  std::int64_t origin_ns_ = 0;
  std::deque<Mark> marks_;
  std::size_t marks_used_ = 0;
};

class CudaEvent final : public DeviceEvent {
 public:
  void record(const Access& access) override { event_.record(queue_of(access)); }
  void wait(const Access& access) const override { event_.wait(queue_of(access)); }
  bool reached() const override { return event_.reached(); }
  void synchronize() const override { event_.synchronize(); }

 private:
  Event event_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal), name_("cuda:" + std::to_string(ordinal)) {}
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string_view name() const override { return name_; }

  void* allocate(std::size_t bytes) override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, std::max<std::size_t>(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error for later calls
      const Memory now = memory();
      throw OutOfMemory(name_ + ": no memory for an allocation of " + std::to_string(bytes) +
                        " bytes; " + std::to_string(now.free) + " of " + std::to_string(now.total) +
                        " are free");
    }
    check(status, "cudaMalloc");
    return address;
  }
  Memory memory() override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {.free = static_cast<std::int64_t>(free), .total = static_cast<std::int64_t>(total)};
  }
  // Small requests share a segment, because each cudaMalloc stalls the complete device.
  Segment allocate_segment(std::size_t at_least) override {
    constexpr std::size_t usual = std::size_t{8} << 20, page = std::size_t{2} << 20;
    const std::size_t needed = (at_least + page - 1) / page * page;
    try {
      const std::size_t bytes = std::max(usual, needed);
      return {allocate(bytes), bytes};
    } catch (const OutOfMemory&) {
      return {allocate(needed), needed};
    }
  }
  void deallocate(void* address, std::size_t) override {
    if (cudaSetDevice(ordinal_) == cudaSuccess) cudaFree(address);
  }
  std::unique_ptr<Stream> make_stream() override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    auto queue = std::make_unique<Queue>();
    queue->device = ordinal_;
    check(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return std::make_unique<CudaStream>(std::move(queue));
  }
  std::unique_ptr<DeviceEvent> make_event() override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    return std::make_unique<CudaEvent>();
  }
  bool has_ranges() const override { return true; }
  void begin_range(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void end_range() override { nvtxRangePop(); }

 private:
  int ordinal_;
  std::string name_;
};

// Version of the driver's kernel module, as nvidia-smi shows it; "" if the system does not report
// it.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::smatch found;
  return std::regex_search(line, found, std::regex(R"(\s(\d+\.\d+(\.\d+)?)\s)")) ? found[1].str()
                                                                                 : "";
}

// Version text of cuBLASLt or cuDNN; "" for 0.
std::string library_text(int version) {
  if (version == 0) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Version text of the CUDA driver API or runtime.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace
}  // namespace cuda

GpuSearch find_gpus() {
  // There is one queue for each pipeline link and asynchronous group besides the queue of the
  // kernels. With the driver's default of 8 connections one queue could wait behind another's work.
  // CUDA reads the variable at the first call of the runtime.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return {.count = count, .reason = ""};
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return {.count = 0, .reason = "this machine has no NVIDIA driver"};
  }
  return {.count = 0,
          .reason = status == cudaSuccess || status == cudaErrorNoDevice
                        ? "the NVIDIA driver reports no GPU"
                        : std::string("the CUDA runtime reports: ") + cudaGetErrorString(status)};
}

bool connect_gpus() {
  const int count = find_gpus().count;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      int can = 0;
      cuda::check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
      if (can == 0) return false;
    }
  }
  for (int from = 0; from < count; ++from) {
    cuda::check(cudaSetDevice(from), "cudaSetDevice");
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();  // clears the error for later calls
      } else {
        cuda::check(status, "cudaDeviceEnablePeerAccess");
      }
    }
  }
  return true;
}

GpuInfo gpu_info(int ordinal) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return {.name = properties.name,
          .versions = {{"driver", cuda::driver_version()},
                       {"cuda_driver", cuda::version_text(driver)},
                       {"cuda_runtime", cuda::version_text(runtime)},
                       {"cublaslt", cuda::library_text(cuda::products_version())},
                       {"cudnn", cuda::library_text(cuda::fused_attention_version())}},
          .memory_bytes = properties.totalGlobalMem,
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount};
}

std::unique_ptr<Device> make_cuda_device(int ordinal) {
  const GpuSearch found = find_gpus();
  if (found.count == 0) throw Error("device cuda was asked for, but " + found.reason);
  if (ordinal < 0 || ordinal >= found.count) {
    throw Error("device cuda:" + std::to_string(ordinal) + " was asked for, but this machine has " +
                counted(found.count, "GPU"));
  }
  return std::make_unique<cuda::CudaDevice>(ordinal);
}

}  // namespace trident
