// What the Access of a GPU's stream names, and how calls of the CUDA runtime are checked.
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

// Throws Error: "cuda: <what>: <the runtime's text>".
void check(cudaError_t status, const char* what);

// Where the environment has TRIDENT_CUDA_LOG: says on stderr which library refused what, or what
// was slower by it, and is now done by our kernels. Called once for each shape.
void log_refusal(const std::string& text);
// To find out on a GPU what a library's part costs or spoils: whether TRIDENT_CUDA_WITHOUT names it
// in its list. "epilogues": what goes with a product is done in steps; "timing": cuBLASLt's first
// algorithm is taken; "cudnn": attention is ours.
bool without(std::string_view part);

// The queue of a piece of work, its device made the calling thread's.
const Queue& queue_of(const Access& access);

// An event of its own, destroyed with it.
class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Queue& queue);
  void wait(const Queue& queue) const;  // the queue waits, not the host
  bool reached() const;                 // what was recorded is done; true before any record
  void synchronize() const;             // the host waits
  // From an earlier event to this one; both timed and reached.
  double milliseconds_since(const Event& earlier) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace trident::cuda
