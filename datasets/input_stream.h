// Reads a file from its beginning to its end and decompresses it. Memory is bounded for any
// contents of the file. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/source_files.h"

namespace trident {

class InputStream {
 public:
  virtual ~InputStream() = default;
  // Fills `out`, or less at the end of the file, and returns the number of bytes; 0 at the end.
  // RequestError with the file's name if it can't be read, is truncated or is damaged.
  virtual std::size_t read(std::span<char> out) = 0;
  // The bytes read so far of the file on disk (compressed bytes), for progress.
  virtual std::uint64_t position() const = 0;
};

std::unique_ptr<InputStream> open_input(const SourceFile& file);

}  // namespace trident
