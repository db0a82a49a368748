#include "checkpoint/kept_on_node.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "checkpoint/checkpoint_folder.h"

namespace trident {

namespace fs = std::filesystem;

Kept kept_in(const std::string& run) {
  Kept kept;
  std::error_code ignored;
  if (!is_private_directory(run)) return kept;
  for (const auto& node : fs::directory_iterator(run, ignored)) {
    if (!is_private_directory(node.path())) continue;
    for (const auto& entry : fs::directory_iterator(node.path(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (const auto saving = iteration_being_saved(name)) kept.unfinished.insert(*saving);
      const auto iteration = iteration_of(name);
      if (!iteration || !is_own_directory(entry.path()) ||
          !is_own_directory(entry.path() / "trident")) {
        continue;
      }
      try {
        const std::string path = (entry.path() / manifest_name).string();
        Manifest manifest = parse_manifest(read_file(path, max_manifest_bytes), path);
        if (manifest.iteration != *iteration) continue;
        kept.sets.push_back({entry.path().lexically_relative(run).string(), std::move(manifest)});
      } catch (const ForeignCheckpoint& error) {
        kept.foreign.emplace(*iteration, error.what());
      } catch (const RequestError& error) {
        kept.unread.emplace(*iteration, error.what());
      }
    }
  }
  std::ranges::sort(kept.sets, {}, &KeptSet::folder);
  return kept;
}

std::vector<std::string> listing_of(const std::vector<KeptSet>& kept) {
  std::vector<std::string> lines;
  for (const KeptSet& one : kept) lines.push_back(one.folder + " " + one.manifest.root);
  return lines;
}

}  // namespace trident
