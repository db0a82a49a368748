#include "formats/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "core/dtype.h"

namespace trident {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kAlignment = 32;  // bytes, the format's default
constexpr std::int64_t kBlock = 32;       // elements of q8_0 that share a scale
constexpr std::size_t kBlockBytes = sizeof(Float16) + kBlock;

// The format's numbers for types of values.
constexpr std::uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& bytes, std::string_view text) {
  put(bytes, std::uint64_t{text.size()});
  bytes += text;
}

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

void require_finite(float stored, float value, const char* type) {
  if (!std::isfinite(stored)) {
    throw Error(fmt::format("{} is no finite number in {}", value, type));
  }
}

template <class T>
void round(std::span<const float> values, std::byte* out, const char* type) {
  for (const float value : values) {
    const T stored(value);
    require_finite(static_cast<float>(stored), value, type);
    std::memcpy(out, &stored, sizeof stored);
    out += sizeof stored;
  }
}

// llama.cpp's rounding (ggml-quants.c, quantize_row_q8_0_ref): the largest absolute value of a
// block becomes 127; halves are rounded away from zero.
void quantize(std::span<const float> values, std::byte* out) {
  for (; !values.empty(); values = values.subspan(kBlock), out += kBlockBytes) {
    float largest = 0;
    for (const float value : values.first(kBlock)) {
      require_finite(value, value, "Q8_0");
      largest = std::max(largest, std::abs(value));
    }
    const float step = largest / 127;
    const float inverse = step > 0 ? 1 / step : 0;
    const Float16 scale(step);
    require_finite(static_cast<float>(scale), largest, "Q8_0, whose scales are F16");
    std::array<std::int8_t, kBlock> rounded{};
    std::ranges::transform(values.first(kBlock), rounded.begin(), [&](float value) {
      return static_cast<std::int8_t>(std::round(value * inverse));
    });
    std::memcpy(out, &scale, sizeof scale);
    std::memcpy(out + sizeof scale, rounded.data(), rounded.size());
  }
}

}  // namespace

std::uint64_t GgufTensor::row_bytes() const {
  const auto elements = static_cast<std::uint64_t>(row());
  switch (type) {
    case GgufType::f32:
      return elements * sizeof(float);
    case GgufType::q8_0:
      return elements / kBlock * kBlockBytes;
    default:
      return elements * sizeof(Float16);
  }
}

bool fits(GgufType type, std::int64_t row) {
  return type != GgufType::q8_0 || row % kBlock == 0;
}

void to_gguf(std::span<const float> rows, GgufType type, std::span<std::byte> out) {
  switch (type) {
    case GgufType::f32:
      return round<float>(rows, out.data(), "F32");
    case GgufType::f16:
      return round<Float16>(rows, out.data(), "F16");
    case GgufType::bf16:
      return round<BFloat16>(rows, out.data(), "BF16");
    case GgufType::q8_0:
      return quantize(rows, out.data());
  }
}

void GgufKeys::begin(std::string_view key, std::uint32_t type) {
  ++count_;
  put(bytes_, key);
  put(bytes_, type);
}

void GgufKeys::begin_list(std::string_view key, std::uint32_t type, std::size_t size) {
  begin(key, kArray);
  put(bytes_, type);
  put(bytes_, std::uint64_t{size});
}

void GgufKeys::set(std::string_view key, const std::string& value) {
  begin(key, kString);
  put(bytes_, std::string_view(value));
}

void GgufKeys::set(std::string_view key, std::uint32_t value) {
  begin(key, kUint32);
  put(bytes_, value);
}

void GgufKeys::set(std::string_view key, float value) {
  begin(key, kFloat32);
  put(bytes_, value);
}

void GgufKeys::set(std::string_view key, bool value) {
  begin(key, kBool);
  put(bytes_, static_cast<std::uint8_t>(value));
}

void GgufKeys::set(std::string_view key, const std::vector<std::string>& values) {
  begin_list(key, kString, values.size());
  for (const std::string& value : values) put(bytes_, std::string_view(value));
}

void GgufKeys::set(std::string_view key, const std::vector<float>& values) {
  begin_list(key, kFloat32, values.size());
  for (const float value : values) put(bytes_, value);
}

void GgufKeys::set(std::string_view key, const std::vector<std::int32_t>& values) {
  begin_list(key, kInt32, values.size());
  for (const std::int32_t value : values) put(bytes_, value);
}

GgufWriter::GgufWriter(const std::string& path, const GgufKeys& keys,
                       std::vector<GgufTensor> tensors)
    : file_(path), tensors_(std::move(tensors)), written_(tensors_.size()) {
  std::string head = "GGUF";
  put(head, std::uint32_t{3});
  put(head, std::uint64_t{tensors_.size()});
  put(head, keys.count());
  head += keys.bytes();
  std::uint64_t offset = 0;  // from the beginning of the data
  for (const GgufTensor& tensor : tensors_) {
    put(head, std::string_view(tensor.name));
    put(head, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      put(head, static_cast<std::uint64_t>(*extent));  // the fastest-varying first
    }
    put(head, static_cast<std::uint32_t>(tensor.type));
    put(head, offset);
    offsets_.push_back(offset);
    offset = aligned(offset + tensor.bytes());
  }
  head.resize(aligned(head.size()));
  for (std::uint64_t& one : offsets_) one += head.size();
  file_.write(head);
  // Fill the file to its end, which may be padding.
  if (offset > 0) file_.write_at(head.size() + offset - 1, std::array{std::byte{0}});
}

void GgufWriter::append(std::size_t index, std::span<const std::byte> rows) {
  file_.write_at(offsets_[index] + written_[index], rows);
  written_[index] += rows.size();
}

void GgufWriter::finish(bool replaces) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (written_[i] == tensors_[i].bytes()) continue;
    throw Error(fmt::format("{}: tensor \"{}\": {} of {} bytes were written", file_.path(),
                            tensors_[i].name, written_[i], tensors_[i].bytes()));
  }
  file_.commit(replaces);
}

}  // namespace trident
