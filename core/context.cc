#include "core/context.h"

#include <cstring>

#include "base/error.h"
#include "base/files/byte_buffer.h"
#include "core/operation_trace.h"

namespace trident {
namespace {

void check_bytes(const char* operation, std::size_t host, const Tensor& tensor) {
  if (host != static_cast<std::size_t>(tensor.bytes())) {
    throw Error(std::string(operation) + ": " + std::to_string(host) + " bytes on the host, " +
                std::to_string(tensor.bytes()) + " in the tensor " + tensor.shape().to_string());
  }
}

}  // namespace

Context::Context(Device& device, int threads, KernelOptions options)
    : device_(device),
      options_(options),
      allocator_(std::make_shared<Allocator>(device, ledger_)),
      team_(threads),
      stream_(device.make_stream()) {}

Context::~Context() {
  for (const auto& pending : pending_) pending->finish();
}

void Context::give_way() {
  if (!turns_.shares()) return;
  const auto place = trace_ == nullptr ? OperationTrace::Place() : trace_->place();
  turns_.give_way();
  if (trace_ != nullptr) trace_->resume(place);
}

void Context::keep(std::shared_ptr<Pending> pending) {
  const std::lock_guard lock(pending_mutex_);
  std::erase_if(pending_, [](const auto& one) {
    try {
      return one->done();
    } catch (const std::exception&) {
      return false;  // the device has failed; its next use reports the failure
    }
  });
  pending_.push_back(std::move(pending));
}

Tensor Context::empty(Shape shape, DType dtype, Category category) {
  const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return Tensor(std::make_shared<Storage>(allocator_, bytes, category), 0, shape, dtype);
}

void Context::copy_from_host(const Tensor& destination, std::span<const std::byte> source) {
  check_bytes("copy_from_host", source.size(), destination);
  if (source.empty() || is_planning()) return;
  if (stream_->immediate()) {
    stream_->write(TensorAddress::of(Access{}, destination), source);
    return;
  }
  stream_->enqueue(
      [this, destination,
       staged = std::vector<std::byte>(source.begin(), source.end())](const Access& access) {
        stream_->write(TensorAddress::of(access, destination), staged);
      });
}

void Context::copy_to_host(std::span<std::byte> destination, const Tensor& source) {
  check_bytes("copy_to_host", destination.size(), source);
  if (destination.empty()) return;
  if (is_planning()) {
    std::memset(destination.data(), 0, destination.size());
    return;
  }
  if (!stream_->immediate()) std::memset(destination.data(), 0xff, destination.size());
  stream_->enqueue([this, destination, source](const Access& access) {
    stream_->read(destination, TensorAddress::of(access, source));
  });
}

void Context::read_on_host(const Tensor& tensor,
                           const std::function<void(std::span<const std::byte>)>& visit) {
  const auto size = static_cast<std::size_t>(tensor.bytes());
  ByteBuffer copy;
  stream_->enqueue([this, tensor, size, &visit, &copy](const Access& access) {
    const void* at = TensorAddress::of(access, tensor);
    if (access.queue() == nullptr) return visit({static_cast<const std::byte*>(at), size});
    copy.resize(size);
    stream_->read(copy, at);
  });
  stream_->synchronize();
  if (!copy.empty()) visit(copy);
}

void Context::write_on_host(const Tensor& tensor,
                            const std::function<void(std::span<std::byte>)>& fill) {
  const auto size = static_cast<std::size_t>(tensor.bytes());
  bool in_place = false;
  std::exception_ptr error;  // thrown in stream work, the exception would fail the whole run
  stream_->enqueue([&](const Access& access) {
    void* const at = TensorAddress::of(access, tensor);
    if (access.queue() != nullptr) return;
    in_place = true;
    try {
      fill({static_cast<std::byte*>(at), size});
    } catch (...) {
      error = std::current_exception();
    }
  });
  stream_->synchronize();
  if (error) std::rethrow_exception(error);
  if (in_place) return;
  ByteBuffer filled(size);
  fill(filled);
  stream_->enqueue([this, tensor, filled = std::move(filled)](const Access& access) {
    stream_->write(TensorAddress::of(access, tensor), filled);
  });
}

}  // namespace trident
