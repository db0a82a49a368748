#include "datasets/indexed_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;

// Appends numbers of one type to a file.
template <class T>
class NumberWriter {
 public:
  explicit NumberWriter(AtomicFile& to) : to_(to) {}
  ~NumberWriter() = default;
  void add(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    store_little_endian(value, bytes_.data() + bytes_.size() - sizeof(T));
    if (bytes_.size() >= kBuffer) flush();
  }
  void flush() {
    to_.write(bytes_);
    bytes_.clear();
  }

 private:
  AtomicFile& to_;
  std::vector<std::byte> bytes_;
};

template <class T>
void write_number(AtomicFile& to, T value) {
  NumberWriter<T> writer(to);
  writer.add(value);
  writer.flush();
}

}  // namespace

IndexedWriter::IndexedWriter(const std::string& prefix, std::int64_t vocab_size)
    : bin_(prefix + ".bin"), idx_(prefix + ".idx"), wide_(vocab_size > 1 << 16) {}

void IndexedWriter::append(std::span<const std::int32_t> tokens) {
  const std::size_t width = wide_ ? 4 : 2;
  while (!tokens.empty()) {
    const auto space =
        static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - sequence_);
    if (space == 0) {
      end_sequence();
      continues_ = true;
      continue;
    }
    const auto part = tokens.first(std::min({tokens.size(), space, kBuffer / 4}));
    const std::size_t before = buffer_.size();
    buffer_.resize(before + part.size() * width);
    std::byte* to = buffer_.data() + before;
    for (const std::int32_t token : part) {
      if (wide_) {
        store_little_endian(token, to);
      } else {
        store_little_endian(static_cast<std::uint16_t>(token), to);
      }
      to += width;
    }
    sequence_ += static_cast<std::int32_t>(part.size());
    tokens_ += static_cast<std::int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (buffer_.size() >= kBuffer) flush();
  }
}

void IndexedWriter::flush() {
  bin_.write(buffer_);
  buffer_.clear();
}

void IndexedWriter::end_sequence() {
  if (continues_) later_.push_back(static_cast<std::int64_t>(lengths_.size()));
  lengths_.push_back(sequence_);
  sequence_ = 0;
}

void IndexedWriter::end_document() {
  if (sequence_ > 0) end_sequence();
  continues_ = false;
}

void IndexedWriter::commit() {
  flush();
  const auto sequences = static_cast<std::int64_t>(lengths_.size());
  idx_.write(std::string_view("MMIDIDX\0\0", 9));
  write_number<std::uint64_t>(idx_, 1);
  write_number<std::uint8_t>(idx_, wide_ ? 4 : 8);
  write_number<std::int64_t>(idx_, sequences);
  write_number<std::int64_t>(idx_, documents() + 1);
  NumberWriter<std::int32_t> lengths(idx_);
  for (const std::int32_t length : lengths_) lengths.add(length);
  lengths.flush();
  NumberWriter<std::int64_t> numbers(idx_);
  std::int64_t at = 0;
  for (const std::int32_t length : lengths_) {
    numbers.add(at);
    at += std::int64_t{length} * (wide_ ? 4 : 2);
  }
  auto later = later_.begin();
  for (std::int64_t i = 0; i < sequences; ++i) {
    if (later != later_.end() && *later == i) {
      ++later;
    } else {
      numbers.add(i);
    }
  }
  numbers.add(sequences);
  numbers.flush();
  bin_.commit();
  idx_.commit();
}

}  // namespace trident
