// The bytes of a file from its beginning to its end, decompressed on the way. Memory is bounded
// whatever the file holds.
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
  // Fills `out` as far as the file goes; how much there was, 0 at the end. RequestError with the
  // file's name where it can't be read, is cut or damaged.
  virtual std::size_t read(std::span<char> out) = 0;
  // Of the file as it lies on the disk: bytes read so far, for progress.
  virtual std::uint64_t position() const = 0;
};

std::unique_ptr<InputStream> open_input(const SourceFile& file);

}  // namespace trident
