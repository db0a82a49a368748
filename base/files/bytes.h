// Little-endian numbers in memory: reads with bounds checks, and writes in one byte order on every
// machine. The file formats (safetensors, Megatron .idx, TensorBoard) are parsed and written with
// these types.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace trident {

namespace bytes_detail {
template <std::size_t size>
struct Carrier;
template <>
struct Carrier<1> {
  using type = std::uint8_t;
};
template <>
struct Carrier<2> {
  using type = std::uint16_t;
};
template <>
struct Carrier<4> {
  using type = std::uint32_t;
};
template <>
struct Carrier<8> {
  using type = std::uint64_t;
};
}  // namespace bytes_detail

// A number type that is stored little-endian.
template <class T>
concept LittleEndianNumber = (std::integral<T> || std::floating_point<T>)&&sizeof(T) <= 8;

// The number at `source`, which need not be aligned and must have sizeof(T) readable bytes.
template <LittleEndianNumber T>
T load_little_endian(const std::byte* source) {
  using Bits = typename bytes_detail::Carrier<sizeof(T)>::type;
  Bits bits = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&bits, source, sizeof(T));
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits = static_cast<Bits>(bits | static_cast<Bits>(static_cast<Bits>(source[i]) << (8 * i)));
    }
  }
  return std::bit_cast<T>(bits);
}

template <LittleEndianNumber T>
void store_little_endian(T value, std::byte* target) {
  const auto bits = std::bit_cast<typename bytes_detail::Carrier<sizeof(T)>::type>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    target[i] = static_cast<std::byte>((bits >> (8 * i)) & 0xffu);
  }
}

// Reads numbers from bytes that it doesn't own. Reading past the end throws a RequestError that
// names the file, the offset, the bytes needed and the bytes left. The position then does not
// change.
class ByteReader {
 public:
  // `file` is the file name for errors; `base` is the offset of `bytes` in that file.
  ByteReader(std::span<const std::byte> bytes, std::string file, std::uint64_t base = 0)
      : bytes_(bytes), file_(std::move(file)), base_(base) {}

  template <LittleEndianNumber T>
  T read(std::string_view what) {
    return load_little_endian<T>(take(sizeof(T), what).data());
  }
  // The next `count` bytes, as a view into the given span. `what` names them in errors.
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  std::string file_;
  std::uint64_t base_;
  std::size_t position_ = 0;
};

// Fills a span from its start. Writing past its end throws an Error with the same information.
class ByteWriter {
 public:
  ByteWriter(std::span<std::byte> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  template <LittleEndianNumber T>
  void write(T value) {
    store_little_endian(value, claim(sizeof(T)).data());
  }

  std::size_t position() const { return position_; }
  std::span<const std::byte> written() const { return bytes_.first(position_); }

 private:
  std::span<std::byte> claim(std::size_t count);

  std::span<std::byte> bytes_;
  std::string file_;
  std::size_t position_ = 0;
};

// The bytes of a text, as a view.
inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace trident
