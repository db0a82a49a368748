// GPUs as devices. A build without CUDA has none (kernels/no_cuda.cc).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"

namespace trident {

struct GpuSearch {
  int count = 0;
  std::string reason;  // why there is none
};
// What this process could compute on. Never throws: a missing driver is a reason.
GpuSearch find_gpus();

struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  // {"driver", "580.82.07"}, {"cuda_driver", "13.0"}, {"cuda_runtime", "13.0"}, {"cublaslt", …},
  // {"cudnn", …}; "" where it is not known.
  std::vector<std::pair<std::string, std::string>> versions;
  std::size_t memory_bytes = 0;  // of the device
  int major = 0, minor = 0;      // compute capability
  int multiprocessors = 0;
};
GpuInfo gpu_info(int ordinal);
// Lets the GPUs of this process read and write each other's memory. False, and nothing is changed,
// where some can't.
bool connect_gpus();

// Streams are in-order queues of the GPU; memory comes from plain device allocations. Throws Error
// where there is no such GPU.
std::unique_ptr<Device> make_cuda_device(int ordinal);

}  // namespace trident
