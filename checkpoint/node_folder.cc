#include "checkpoint/node_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>

#include "base/files/content_hash.h"
#include "base/files/file.h"
#include "checkpoint/checkpoint_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSaveFile = "save";  // in a node's folder: NodePlace::save
constexpr std::uint64_t kMaxSaveFile = 1 << 16;

// The ranks of each node. Nodes are ordered by their first ranks.
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

// Repeats an action that fails because another rank removes the same folder at the same time. The
// folder is gone at the next try.
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

// The NodePlace::save that a node's folder names; "" if it can't be read.
std::string saved_to_in(const fs::path& node) {
  try {
    return read_file((node / kSaveFile).string(), kMaxSaveFile);
  } catch (const std::exception&) {
    return "";  // another user's, or being removed
  }
}

// How surely a folder belongs to the run that saves there. `folder`: its checkpoint.save was moved.
// `path`: the device or inode number has changed, or a backup was restored.
enum class Match { none, path, folder, both };

Match match_of(const fs::path& run, const std::string& identity) {
  const std::size_t line = identity.find('\n');
  Match best = Match::none;
  for (const fs::path& node : folders_in(run.string())) {
    const std::string there = saved_to_in(node);
    const bool path = there.starts_with(identity.substr(0, line + 1));
    const bool folder = there.ends_with(identity.substr(line));
    best = std::max(best, path && folder ? Match::both
                          : folder       ? Match::folder
                          : path         ? Match::path
                                         : Match::none);
  }
  return best;
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
  if (saved_to_in(place.node()) == place.save) return;
  place.files->replace((fs::path(place.node()) / kSaveFile).string(), place.save);
}

void keep_on_node(const NodePlace& place, std::int64_t stays) {
  for (const fs::path& node : folders_in(place.run)) {
    const bool own = node == fs::path(place.node());
    remove_iterations(place, node.string(), [&](std::int64_t iteration) {
      return own ? iteration != stays : iteration < stays;
    });
  }
}

void clear_node(const NodePlace& place, std::int64_t last) {
  const std::string dir = fs::path(place.run).parent_path().string();
  for (const fs::path& run : folders_in(dir)) {
    if (run == fs::path(place.run) || match_of(run, place.save) != Match::both) continue;
    beside_others([&] { place.files->remove(run.string()); });
  }
  clear_unfinished_on_node(*place.files, place.run);
  for (const fs::path& node : folders_in(place.run)) {
    remove_iterations(place, node.string(),
                      [&](std::int64_t iteration) { return iteration > last; });
  }
}

std::vector<std::string> left_by_others(const NodePlace& place) {
  std::vector<std::string> list;
  for (const fs::path& run : folders_in(fs::path(place.run).parent_path().string())) {
    if (run != fs::path(place.run) && match_of(run, place.save) == Match::path) {
      list.push_back(run.string());
    }
  }
  std::ranges::sort(list);
  return list;
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
  fs::path best;
  Match match = Match::none;
  for (const fs::path& one : folders_in(dir)) {
    if (!one.filename().string().starts_with(run + "-")) continue;
    const Match own = match_of(one, identity);
    if (own > match || (own == match && own != Match::none && one < best)) best = one, match = own;
  }
  if (match != Match::none) return best.string();
  const auto named = [&](const std::string& hashed) {
    return fs::path(dir) / fmt::format("{}-{:016x}", run, content_hash(hashed));
  };
  const fs::path usual = named(identity.substr(0, identity.find('\n')));
  // A run that saved to another folder with this path may have taken its name.
  // (make_own_directory() refuses a link of this name, or another user's folder.)
  const auto says = [](const fs::path& node) { return !saved_to_in(node).empty(); };
  const bool taken =
      is_own_directory(usual.string()) && std::ranges::any_of(folders_in(usual.string()), says);
  return (taken ? named(identity) : usual).string();
}

void leave_node(const NodePlace& place) {
  beside_others([&] { place.files->remove(place.run); });
}

}  // namespace trident
