// GPUs as devices. A build without CUDA reports that there are none (kernels/no_cuda.cc):
// find_gpus() returns 0 with the reason, and make_cuda_device() and gpu_info() throw Error.
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
  std::string reason;  // why count is 0
};
// Returns the number of GPUs that this process can use. Never throws: a missing driver is reported
// as the reason. Sets CUDA_DEVICE_MAX_CONNECTIONS to 32 unless the environment has it.
GpuSearch find_gpus();

struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  // {"driver", "580.82.07"}, {"cuda_driver", "13.0"}, {"cuda_runtime", "13.0"}, {"cublaslt", …},
  // {"cudnn", …}; "" for an unknown version.
  std::vector<std::pair<std::string, std::string>> versions;
  std::size_t memory_bytes = 0;  // total memory of the device
  int major = 0, minor = 0;      // compute capability
  int multiprocessors = 0;
};
// Throws Error if the CUDA runtime reports an error.
GpuInfo gpu_info(int ordinal);
// Enables peer access between all GPUs of this process. Returns false, and changes nothing, if some
// pair of GPUs does not support it.
bool connect_gpus();

// Returns the GPU as a device. Its streams are in-order queues of the GPU; its memory comes from
// plain cudaMalloc. Throws Error if there is no GPU of this number.
std::unique_ptr<Device> make_cuda_device(int ordinal);

}  // namespace trident
