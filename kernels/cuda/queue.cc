#include "kernels/cuda/queue.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace trident::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(std::string("cuda: ") + what + ": " + cudaGetErrorString(status) + " (" +
              cudaGetErrorName(status) + ")");
}

void log_refusal(const std::string& text) {
  if (std::getenv("TRIDENT_CUDA_LOG") != nullptr) {
    std::fprintf(stderr, "trident cuda: refused: %s\n", text.c_str());
  }
}

bool without(std::string_view part) {
  const char* const list = std::getenv("TRIDENT_CUDA_WITHOUT");
  if (list == nullptr) return false;
  return ("," + std::string(list) + ",").find("," + std::string(part) + ",") != std::string::npos;
}

const Queue& queue_of(const Access& access) {
  const Queue& queue = *static_cast<const Queue*>(access.queue());
  check(cudaSetDevice(queue.device), "cudaSetDevice");
  return queue;
}

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
}
Event::~Event() {
  cudaEventDestroy(event_);
}
void Event::record(const Queue& queue) {
  check(cudaEventRecord(event_, queue.stream), "cudaEventRecord");
}
void Event::wait(const Queue& queue) const {
  check(cudaStreamWaitEvent(queue.stream, event_, 0), "cudaStreamWaitEvent");
}
bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // clears the error for later calls
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}
void Event::synchronize() const {
  check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}
double Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds);
}

}  // namespace trident::cuda
