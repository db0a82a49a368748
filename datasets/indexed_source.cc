#include "datasets/indexed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the terminator, which is the second \0
static_assert(sizeof(kMagic) == 9);

// The dtype codes of the .idx: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16.
std::size_t token_bytes(const std::string& path, int code) {
  switch (code) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    case 6:
    case 7:
      throw RequestError(fmt::format("{}: dtype code {} ({}) is no token type; needs an integer",
                                     path, code, code == 6 ? "f64" : "f32"));
    default:
      throw RequestError(fmt::format("{}: dtype code {} is unknown, needs 1 to 8", path, code));
  }
}

constexpr std::int64_t kMostAtOnce = 1 << 13;  // documents whose begins are read together

struct Counts {
  std::uint64_t sequences, boundaries;
};

// Reads the header's counts and checks that only the lists follow them in the file.
Counts read_counts(ByteReader& reader, const std::string& path) {
  const auto sequences = reader.read<std::uint64_t>("the number of sequences");
  const auto boundaries = reader.read<std::uint64_t>("the number of document indices");
  // Compare by division first, so that hostile counts can't overflow the product.
  const std::uint64_t rest = reader.remaining();
  if (sequences > rest / 12 || boundaries > rest / 8 || sequences * 12 + boundaries * 8 != rest) {
    throw RequestError(fmt::format(
        "{}: {} sequences (12 bytes each) and {} document indices (8 bytes each) don't match the "
        "{} bytes after the header: truncated or damaged",
        path, sequences, boundaries, rest));
  }
  if (boundaries == 0) throw RequestError(path + ": no document index, the first must be 0");
  return {sequences, boundaries};
}

// Checks the sequences, which must be contiguous in the .bin. Returns the size of the .bin in
// bytes.
std::uint64_t read_sequences(ByteReader& reader, const std::string& path, std::uint64_t sequences,
                             std::uint64_t width) {
  const auto lengths = reader.take(sequences * 4, "the lengths");
  const auto pointers = reader.take(sequences * 8, "the pointers");
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto length = load_little_endian<std::int32_t>(lengths.data() + 4 * i);
    const auto pointer = load_little_endian<std::int64_t>(pointers.data() + 8 * i);
    if (length < 0) {
      throw RequestError(fmt::format("{}: sequence {} has length {}", path, i, length));
    }
    if (pointer < 0 || static_cast<std::uint64_t>(pointer) != expected) {
      throw RequestError(
          fmt::format("{}: sequence {} points to byte {}, the lengths before it "
                      "give {}",
                      path, i, pointer, expected));
    }
    expected += static_cast<std::uint64_t>(length) * width;
  }
  return expected;
}

// Checks the document indices: the first sequence of each document, and the end of the last one.
void check_documents(ByteReader& reader, const std::string& path, const Counts& counts) {
  std::int64_t last = 0;
  for (std::uint64_t i = 0; i < counts.boundaries; ++i) {
    const auto at = reader.read<std::int64_t>("a document index");
    if (i == 0 ? at != 0 : at < last) {
      throw RequestError(fmt::format("{}: document index {} is {}, must be {}", path, i, at,
                                     i == 0 ? "0" : fmt::format("at least {}", last)));
    }
    last = at;
  }
  if (last != static_cast<std::int64_t>(counts.sequences)) {
    throw RequestError(
        fmt::format("{}: the last document index is {}, must be the number of "
                    "sequences, {}",
                    path, last, counts.sequences));
  }
}

// Reads where documents begin in an .idx that has been checked. It is open only while it is read:
// folders may have more pairs than a process may have files.
class DocumentIndex {
 public:
  DocumentIndex(const std::string& path, std::int64_t sequences, std::size_t width,
                std::int64_t size)
      : file_(path), sequences_(sequences), width_(static_cast<std::int64_t>(width)), size_(size) {}

  // The positions at which documents first, first + 1, … begin; the document after the last: the
  // end. Error if the file has changed.
  std::vector<std::int64_t> begins(std::int64_t first, std::int64_t count) const {
    std::vector<std::int64_t> begins = entries(sequences_ + first, count);
    for (const std::int64_t sequence : begins) need(sequence >= 0 && sequence <= sequences_);
    // The pointers of the documents' first sequences are read together.
    const std::int64_t low = std::ranges::min(begins), high = std::ranges::max(begins);
    std::vector<std::int64_t> positions(begins.size());
    for (std::int64_t from = low; from <= high; from += kPointersAtOnce) {
      const std::int64_t to = std::min(from + kPointersAtOnce, high + 1);
      const auto pointers = entries(from, std::min(to, sequences_) - from);
      for (std::size_t i = 0; i < begins.size(); ++i) {
        if (begins[i] < from || begins[i] >= to) continue;
        positions[i] = begins[i] == sequences_
                           ? size_
                           : pointers[static_cast<std::size_t>(begins[i] - from)] / width_;
        need(positions[i] >= 0 && positions[i] <= size_);
      }
    }
    return positions;
  }

 private:
  static constexpr std::int64_t kPointersAtOnce = 1 << 16;

  // 8-byte entries behind the lengths: pointers, then document indices.
  std::vector<std::int64_t> entries(std::int64_t at, std::int64_t count) const {
    constexpr std::int64_t header = sizeof(kMagic) + 8 + 1 + 8 + 8;
    std::vector<std::byte> bytes(static_cast<std::size_t>(8 * count));
    file_.read_at(static_cast<std::uint64_t>(header + 4 * sequences_ + 8 * at), bytes);
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back(load_little_endian<std::int64_t>(bytes.data() + 8 * i));
    }
    return list;
  }
  void need(bool unchanged) const {
    if (!unchanged) throw Error(file_.path() + ": has changed since it was opened");
  }

  ReadFile file_;
  std::int64_t sequences_, width_, size_;
};

}  // namespace

IndexedSource::IndexedSource(const std::string& prefix, std::int64_t vocab_size,
                             std::optional<TextOrigin> text)
    : bin_(prefix + ".bin"),
      text_(std::move(text)),
      idx_(prefix + ".idx"),
      vocab_size_(vocab_size) {
  const MappedFile index(prefix + ".idx");
  const std::string& path = index.path();
  ByteReader reader(index.bytes(), path);
  if (std::memcmp(reader.take(sizeof(kMagic), "the magic").data(), kMagic, sizeof(kMagic)) != 0) {
    throw RequestError(path + ": bad magic, a Megatron .idx begins with \"MMIDIDX\\0\\0\"");
  }
  const auto version = reader.read<std::uint64_t>("the version");
  if (version != 1) throw RequestError(fmt::format("{}: version {}, needs 1", path, version));
  dtype_ = reader.read<std::uint8_t>("the dtype");
  const std::uint64_t width = token_bytes(path, dtype_);
  const Counts counts = read_counts(reader, path);
  const std::uint64_t expected = read_sequences(reader, path, counts.sequences, width);
  check_documents(reader, path, counts);
  if (expected != bin_.size()) {
    throw RequestError(fmt::format("{}: {} bytes, {} says {}: truncated or not of this pair",
                                   bin_.path(), bin_.size(), path, expected));
  }
  if (expected == 0) throw RequestError(fmt::format("{}: holds no token", bin_.path()));
  size_ = static_cast<std::int64_t>(expected / width);
  sequences_ = static_cast<std::int64_t>(counts.sequences);
  documents_ = static_cast<std::int64_t>(counts.boundaries) - 1;
}

std::vector<std::int64_t> IndexedSource::document_edges(std::int64_t begin,
                                                        std::int64_t end) const {
  const DocumentIndex index(idx_, sequences_, token_bytes(idx_, dtype_), size_);
  std::int64_t first = 0, last = documents_;  // the edges first … last - 1 may lie before
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (index.begins(middle, 1).front() > begin) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  std::vector<std::int64_t> edges;
  for (std::int64_t at_once = 8; first <= documents_;
       at_once = std::min(2 * at_once, kMostAtOnce)) {
    const std::int64_t count = std::min(at_once, documents_ + 1 - first);
    for (const std::int64_t edge : index.begins(first, count)) {
      if (edge > end) return edges;
      if (edge > begin && (edges.empty() || edges.back() != edge)) edges.push_back(edge);
    }
    first += count;
  }
  return edges;
}

template <class Work>
auto IndexedSource::by_type(Work work) const {
  switch (dtype_) {
    case 1:
      return work(std::uint8_t{});
    case 2:
      return work(std::int8_t{});
    case 3:
      return work(std::int16_t{});
    case 4:
      return work(std::int32_t{});
    case 5:
      return work(std::int64_t{});
    default:
      return work(std::uint16_t{});
  }
}

template <class T, class Visit>
void IndexedSource::each(std::int64_t begin, std::int64_t count, Visit visit) const {
  constexpr std::int64_t most = 1 << 20;
  std::vector<std::byte> bytes;
  for (std::int64_t done = 0; done < count; done += most) {
    const std::int64_t part = std::min(most, count - done);
    bytes.resize(static_cast<std::size_t>(part) * sizeof(T));
    bin_.read_at(static_cast<std::uint64_t>(begin + done) * sizeof(T), bytes);
    for (std::int64_t i = 0; i < part; ++i) {
      visit(static_cast<std::int64_t>(
                load_little_endian<T>(bytes.data() + static_cast<std::size_t>(i) * sizeof(T))),
            done + i);
    }
  }
}

void IndexedSource::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > size_ - count) {
    throw Error(fmt::format("{}: tokens {} to {} asked for, it has {}", path(), begin,
                            begin + count, size_));
  }
  by_type([&](auto type) {
    each<decltype(type)>(begin, count, [&](std::int64_t token, std::int64_t i) {
      if (token < 0 || token >= vocab_size_) {
        throw RequestError(fmt::format("{}: token {} at position {} is outside [0, vocab_size {})",
                                       path(), token, begin + i, vocab_size_));
      }
      out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(token);
    });
  });
}

std::int64_t IndexedSource::largest_token(std::int64_t most) const {
  std::int64_t largest = 0;
  by_type([&](auto type) {
    each<decltype(type)>(0, std::min(most, size_), [&](std::int64_t token, std::int64_t) {
      largest = std::max(largest, token);
    });
  });
  return largest;
}

}  // namespace trident
