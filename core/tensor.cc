#include "core/tensor.h"

#include "base/error.h"
#include "core/allocator.h"

namespace trident {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  if (extents.size() > max_rank) {
    throw Error("Shape: " + std::to_string(extents.size()) +
                " dimensions, at most 4 are supported");
  }
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw Error("Shape: negative extent " + std::to_string(extent));
    extents_[rank_++] = extent;
  }
}

Shape Shape::with(int i, std::int64_t extent) const {
  Shape other = *this;
  other.extents_[i] = extent;
  return other;
}

void Shape::append(std::int64_t extent) {
  if (rank_ == max_rank) throw Error("a shape has more dimensions than are supported");
  extents_[rank_++] = extent;
}

std::int64_t Shape::matrix_rows() const {
  std::int64_t rows = rank_ == 0 ? 1 : extents_[0];
  for (int i = 1; i + 1 < rank_; ++i) rows *= extents_[i];
  return rows;
}

std::int64_t Shape::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= extents_[i];
  return n;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(extents_[i]);
  return text + "]";
}

Storage::Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes, Category category)
    : allocator_(std::move(allocator)),
      bytes_(bytes),
      category_(category),
      address_(allocator_->take(bytes, category)) {}

Storage::~Storage() {
  allocator_->give_back(address_, bytes_, category_);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, std::size_t byte_offset, Shape shape, DType dtype)
    : storage_(std::move(storage)), byte_offset_(byte_offset), shape_(shape), dtype_(dtype) {
  if (storage_ && byte_offset_ + static_cast<std::size_t>(bytes()) > storage_->bytes()) {
    throw Error("Tensor: " + shape_.to_string() + " at byte " + std::to_string(byte_offset_) +
                " exceeds its storage of " + std::to_string(storage_->bytes()) + " bytes");
  }
}

Tensor Tensor::view(Shape shape) const {
  if (shape.numel() != numel()) {
    throw Error("Tensor::view: " + shape_.to_string() + " cannot be seen as " + shape.to_string());
  }
  return Tensor(storage_, byte_offset_, shape, dtype_);
}

Tensor Tensor::flat(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin + count > numel()) {
    throw Error("Tensor::flat: [" + std::to_string(begin) + ", +" + std::to_string(count) +
                ") is outside " + std::to_string(numel()) + " elements");
  }
  return Tensor(storage_, byte_offset_ + static_cast<std::size_t>(begin) * size_of(dtype_), {count},
                dtype_);
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  if (shape_.rank() == 0 || begin < 0 || count < 0 || begin + count > dim(0)) {
    throw Error("Tensor::rows: [" + std::to_string(begin) + ", +" + std::to_string(count) +
                ") is outside " + shape_.to_string());
  }
  const std::int64_t row = dim(0) == 0 ? 0 : numel() / dim(0);
  Tensor part = flat(begin * row, count * row);
  switch (shape_.rank()) {
    case 1:
      return part;
    case 2:
      return part.view({count, dim(1)});
    case 3:
      return part.view({count, dim(1), dim(2)});
    default:
      return part.view({count, dim(1), dim(2), dim(3)});
  }
}

template <class T>
T* data(const Access& access, const Tensor& tensor) {
  if (tensor.defined() && tensor.dtype() != DTypeOf<T>::value) {
    throw Error("Tensor: read as " + std::string(name_of(DTypeOf<T>::value)) + ", holds " +
                std::string(name_of(tensor.dtype())));
  }
  return static_cast<T*>(TensorAddress::of(access, tensor));
}

template double* data(const Access&, const Tensor&);
template float* data(const Access&, const Tensor&);
template BFloat16* data(const Access&, const Tensor&);
template Float16* data(const Access&, const Tensor&);
template std::int64_t* data(const Access&, const Tensor&);
template std::int32_t* data(const Access&, const Tensor&);
template std::uint8_t* data(const Access&, const Tensor&);

}  // namespace trident
