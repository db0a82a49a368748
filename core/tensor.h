// A typed, contiguous, row-major block of device memory, passed by value like a handle. Invalid
// arguments throw Error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/device.h"
#include "core/dtype.h"
#include "core/ledger.h"

namespace trident {

class Allocator;

// Up to four extents; row-major, the last is contiguous.
class Shape {
 public:
  static constexpr int max_rank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return extents_[i]; }  // negative i counts from the end
  std::int64_t dim(int i) const { return extents_[i < 0 ? rank_ + i : i]; }
  std::int64_t numel() const;                    // 1 for rank 0
  Shape with(int i, std::int64_t extent) const;  // the same but for one extent
  void append(std::int64_t extent);              // one more dimension, the last
  // The tensor as a matrix (parallel/placement.h): its last dimension gives the columns, the others
  // in row-major order the rows. A vector is one column.
  std::int64_t matrix_columns() const { return rank_ < 2 ? 1 : extents_[rank_ - 1]; }
  std::int64_t matrix_rows() const;
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[4, 768]"

 private:
  std::int64_t extents_[max_rank] = {};
  int rank_ = 0;
};

// The memory of one allocation. It returns to its allocator when the last tensor on it is
// destroyed.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes, Category category);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* address() const { return address_; }  // a device address; only for Access
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Allocator> allocator_;
  std::size_t bytes_;
  Category category_;
  void* address_;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage
  Tensor(std::shared_ptr<Storage> storage, std::size_t byte_offset, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int i) const { return shape_.dim(i); }
  std::int64_t numel() const { return shape_.numel(); }
  std::int64_t bytes() const { return numel() * static_cast<std::int64_t>(size_of(dtype_)); }

  // The same memory under another shape with the same number of elements.
  Tensor view(Shape shape) const;
  // Elements [begin, begin + count) of the flattened tensor, as a view of shape [count].
  Tensor flat(std::int64_t begin, std::int64_t count) const;
  // Rows [begin, begin + count) of the first dimension, as a view.
  Tensor rows(std::int64_t begin, std::int64_t count) const;

 private:
  friend class TensorAddress;
  std::shared_ptr<Storage> storage_;
  std::size_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

// The only way from a tensor to its memory. Kernels and transports use it inside stream work.
class TensorAddress {
 public:
  static void* of(const Access& access, const Tensor& tensor) {
    return tensor.defined() ? access.map(static_cast<std::byte*>(tensor.storage_->address()) +
                                         tensor.byte_offset_)
                            : nullptr;
  }
};

// The typed memory of a tensor; nullptr for an undefined tensor. Throws Error for another dtype.
template <class T>
T* data(const Access& access, const Tensor& tensor);

}  // namespace trident
