#include "training/checkpoint/node_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>

#include "core/content_hash.h"
#include "core/file.h"
#include "training/checkpoint/checkpoint_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSaveFile = "save";  // in a node's folder: NodePlace::save
constexpr std::uint64_t kMaxSaveFile = 1 << 16;

// All nodes' ranks, by their first ones.
std::vector<std::vector<int>> members_of(const Nodes& nodes) {
  std::vector<std::vector<int>> members;
  std::set<int> seen;
  for (int rank = 0; rank < nodes.world_size(); ++rank) {
    if (seen.insert(nodes.of(rank)).second) members.push_back(nodes.inside(rank));
  }
  return members;
}

std::vector<fs::path> folders_in(const std::string& path) {
  std::vector<fs::path> list;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (is_own_directory(entry.path())) list.push_back(entry.path());
  }
  return list;
}

// Another rank may remove the same at the same time: what fails then is there no more the next
// time.
template <class Action>
void beside_others(const Action& action) {
  constexpr int kTries = 5;
  for (int i = 1;; ++i) {
    try {
      return action();
    } catch (const std::exception&) {
      if (i == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

template <class Goes>
void remove_iterations(const NodePlace& place, const std::string& node, const Goes& goes) {
  beside_others([&] {
    for (const fs::path& path : folders_in(node)) {
      const auto iteration = iteration_of(path.filename().string());
      if (iteration && goes(*iteration)) remove_checkpoint(*place.files, node, *iteration);
    }
  });
}

// Whether that is the folder of a run that has saved there. What can't be read isn't.
bool saved_to(const fs::path& run, const std::string& save) {
  for (const fs::path& node : folders_in(run.string())) {
    try {
      if (read_file((node / kSaveFile).string(), kMaxSaveFile) == save) return true;
    } catch (const std::exception&) {
      // Another's, and going perhaps.
    }
  }
  return false;
}

}  // namespace

NodeRole node_role(const Nodes& nodes, int rank, std::int64_t replicas) {
  const std::vector<std::vector<int>> members = members_of(nodes);
  const std::size_t count = members.size();
  const auto copies =
      static_cast<std::size_t>(std::clamp<std::int64_t>(replicas, 0, std::ssize(members) - 1));
  NodeRole role;
  for (std::size_t node = 0; node < count; ++node) {
    const auto own = std::ranges::find(members[node], rank) != members[node].end();
    if (own) {
      role.node = static_cast<int>(node);
      role.leads = members[node].front() == rank;
      role.ranks = members[node];
    }
    for (std::size_t place = 0; place < members[node].size(); ++place) {
      for (std::size_t copy = 1; copy <= copies; ++copy) {
        const std::vector<int>& there = members[(node + copy) % count];
        const int from = members[node][place], to = there[place % there.size()];
        if (from == rank) role.copied_to.push_back(to);
        if (to == rank) role.copies_of.push_back(from);
        if (std::ranges::find(there, rank) != there.end()) role.node_keeps.push_back(from);
      }
    }
  }
  return role;
}

std::string NodePlace::node() const {
  return (fs::path(run) / fmt::format("node-{}", role.node)).string();
}

void make_node_folder(const NodePlace& place) {
  make_own_directory(place.run);
  make_own_directory(place.node());
  const std::string owner = (fs::path(place.node()) / kSaveFile).string();
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(owner, ignored))) place.files->replace(owner, place.save);
}

void keep_on_node(const NodePlace& place, std::int64_t stays) {
  for (const fs::path& node : folders_in(place.run)) {
    const bool own = node == fs::path(place.node());
    remove_iterations(place, node.string(), [&](std::int64_t iteration) {
      return own ? iteration != stays : iteration < stays;
    });
  }
}

void begin_on_node(const NodePlace& place, std::int64_t last) {
  const std::string dir = fs::path(place.run).parent_path().string();
  for (const fs::path& run : folders_in(dir)) {
    if (run == fs::path(place.run) || !saved_to(run, place.save)) continue;
    beside_others([&] { place.files->remove(run.string()); });
  }
  make_node_folder(place);
  clear_unfinished_on_node(*place.files, place.run);
  for (const fs::path& node : folders_in(place.run)) {
    remove_iterations(place, node.string(),
                      [&](std::int64_t iteration) { return iteration > last; });
  }
}

void clear_unfinished_on_node(FileSystem& files, const std::string& run) {
  for (const fs::path& folder : folders_in(run)) {
    beside_others([&] {
      if (folder.filename().string().starts_with(fetched_prefix)) {
        files.remove(folder.string());
      } else {
        clear_unfinished(files, folder.string());
      }
    });
  }
}

std::string save_identity(const std::string& save) {
  std::error_code ignored;
  struct stat status {};
  ::stat(save.c_str(), &status);
  return fmt::format("{}\n{}:{}", fs::weakly_canonical(fs::absolute(save), ignored).string(),
                     status.st_dev, status.st_ino);
}

std::string run_folder_in(const std::string& dir, const std::string& run, const std::string& save) {
  const std::string identity = save_identity(save);
  const std::size_t line = identity.find('\n');
  const fs::path own =
      fs::path(dir) / fmt::format("{}-{:016x}", run, content_hash(identity.substr(0, line)));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(own, ignored))) return own.string();
  for (const fs::path& other : folders_in(dir)) {
    if (!other.filename().string().starts_with(run + "-")) continue;
    for (const fs::path& node : folders_in(other.string())) {
      try {
        const std::string there = read_file((node / kSaveFile).string(), kMaxSaveFile);
        if (there.ends_with(identity.substr(line))) return other.string();
      } catch (const std::exception&) {
        // Another's, and going perhaps.
      }
    }
  }
  return own.string();
}

void leave_node(const NodePlace& place) {
  beside_others([&] { place.files->remove(place.run); });
}

}  // namespace trident
