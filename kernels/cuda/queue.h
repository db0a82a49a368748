// The CUDA stream behind the Access of a GPU stream, and checks of CUDA runtime calls. Queue and
// Event wrap cudaStream_t and cudaEvent_t. A failed runtime call throws Error, except in a
// destructor.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "core/device.h"

namespace trident::cuda {

struct Queue {
  cudaStream_t stream = nullptr;
  int device = 0;
};

// Throws Error unless `status` is cudaSuccess: "cuda: <what>: <the runtime's text> (<error name>)".
void check(cudaError_t status, const char* what);

// If the environment has TRIDENT_CUDA_LOG, prints a line on stderr. It says which library had no
// kernel for a shape, or a slower one, so that our kernels run instead. Called once for each shape.
void log_refusal(const std::string& text);
// Whether the list in TRIDENT_CUDA_WITHOUT names `part`. It switches a library feature off, to
// measure on a GPU what the feature costs or whether it causes an error. "epilogues": epilogues of
// products run as separate kernels. "timing": the first algorithm of cuBLASLt is used. "cudnn":
// attention runs on our kernels.
bool without(std::string_view part);

// Returns the queue of a piece of stream work. Makes its device the current device of the calling
// thread.
const Queue& queue_of(const Access& access);

// A CUDA event, created and destroyed with the object.
class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Queue& queue);
  void wait(const Queue& queue) const;  // the queue waits; the host does not
  bool reached() const;                 // the recorded work is done; true before any record
  void synchronize() const;             // the host waits
  // Time from an earlier event to this one. Both must be timed and reached.
  double milliseconds_since(const Event& earlier) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace trident::cuda
