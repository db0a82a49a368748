// The data that ranks exchange while they save a checkpoint together: the slices of each rank, and
// the checksums of the blocks that each has written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/files/crc64.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_list.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// The slices of all ranks, by rank. Collective.
std::vector<std::vector<Slice>> exchanged_slices(Context&, const ProcessGroup& group,
                                                 const std::vector<Slice>& own);

// Adds these slices to `manifest` as the contents of `file`.
void add_slices(Manifest& manifest, const std::vector<Slice>& slices, const std::string& file);

// Checksums of the blocks of files, as far as this rank has written them.
class FileSums {
 public:
  BlockSums& of(const std::string& file, std::uint64_t bytes);
  // Combines the checksums of all ranks on rank 0, which must have called of() for every file.
  // Collective.
  void join_at_first(Context&, const ProcessGroup& group);
  // Writes the checksums into the manifest's files.
  void enter(Manifest&) const;

 private:
  std::string text() const;
  void join(const std::string& text);

  std::map<std::string, BlockSums> sums_;
};

}  // namespace trident
