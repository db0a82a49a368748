// What ranks that save a checkpoint together tell each other: which slices each has, and the sums
// of the blocks that it has written.
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

// By rank. Collective.
std::vector<std::vector<Slice>> exchanged_slices(Context&, const ProcessGroup& group,
                                                 const std::vector<Slice>& own);

// Adds to `manifest` that these slices lie in this file.
void add_slices(Manifest& manifest, const std::vector<Slice>& slices, const std::string& file);

// The sums of files' blocks, as far as this rank has written them.
class FileSums {
 public:
  BlockSums& of(const std::string& file, std::uint64_t bytes);
  // Rank 0's become all ranks' together, of the files that it has asked of() for. Collective.
  void join_at_first(Context&, const ProcessGroup& group);
  // Into the manifest's files.
  void enter(Manifest&) const;

 private:
  std::string text() const;
  void join(const std::string& text);

  std::map<std::string, BlockSums> sums_;
};

}  // namespace trident
