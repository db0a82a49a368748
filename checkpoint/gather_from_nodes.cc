#include "checkpoint/gather_from_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "checkpoint/exchanged_texts.h"
#include "checkpoint/node_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

std::string lines_of(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

std::set<std::string> names_in(const std::string& lines) {
  std::set<std::string> names;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    names.insert(lines.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

}  // namespace

struct GatheredParts::Transfer {
  std::string file;
  std::uint64_t bytes = 0;
  int sender = 0, receiver = 0;
};

GatheredParts::GatheredParts(Context& context, const ProcessGroup& group, FileSystem& files,
                             const Manifest& manifest, const NodeSet& set,
                             const std::set<std::string>& needed)
    : files_(files), manifest_(manifest), set_(set) {
  try {
    gather(context, group, needed);
  } catch (...) {
    remove_own();
    throw;
  }
}

void GatheredParts::gather(Context& context, const ProcessGroup& group,
                           const std::set<std::string>& needed) {
  const std::vector<std::string> asked = exchanged_texts(context, group, lines_of(needed));
  // By place and file: the rank that receives the file for all ranks of the place.
  std::map<std::pair<int, std::string>, int> receivers;
  std::map<int, std::vector<int>> ranks_of;  // by place
  for (int rank = 0; rank < group.size(); ++rank) {
    const int place = set_.place(rank);
    ranks_of[place].push_back(rank);
    for (const std::string& file : names_in(asked[static_cast<std::size_t>(rank)])) {
      const auto& copies = set_.parts.at(file);
      if (std::ranges::find(copies, place, &NodeSet::Copy::place) != copies.end()) continue;
      receivers.emplace(std::pair(place, file), rank);
    }
  }
  // If memory is short, the remains of an interrupted start may fill it.
  if (ranks_of[set_.own_place].front() == group.rank() && !receivers.empty()) {
    try {
      clear_unfinished_on_node(files_, set_.run);
    } catch (const std::exception&) {
      // If there is no space then, the receiver reports it. The other ranks wait at the barrier.
    }
  }
  group.barrier(context);
  std::string damage, failure;
  std::size_t turn = 0;  // of the ranks that have the file
  for (const auto& [at, receiver] : receivers) {
    const auto& [place, file] = at;
    const std::vector<int>& have = ranks_of[set_.parts.at(file).front().place];
    Transfer one{.file = file, .bytes = manifest_.files.at(file).bytes, .receiver = receiver};
    if (have.empty()) continue;  // no rank of this job is there; reported below
    one.sender = have[turn++ % have.size()];
    if (place == set_.own_place) paths_[file] = fetched(file, receiver);
    if (group.rank() == one.sender || group.rank() == receiver) {
      transfer(context, group, one, damage, failure);
    }
  }
  group.barrier(context);
  for (const std::string& file : needed) {
    if (!damage.empty() || !path(file).empty()) continue;
    damage = fmt::format("{}: no node has it any more", file);
  }
  if (!failure.empty()) throw Error(failure);
  if (!damage.empty()) throw RequestError(damage);
}

GatheredParts::~GatheredParts() {
  remove_own();
}

void GatheredParts::remove_own() noexcept {
  for (const std::string& folder : own_) {
    try {
      files_.remove(folder);
    } catch (const std::exception&) {
      // The next start of the run removes it.
    }
  }
}

std::string GatheredParts::path(const std::string& file) const {
  const auto found = paths_.find(file);
  return found != paths_.end() ? found->second : set_.path_here(file);
}

std::string GatheredParts::fetched(const std::string& file, int receiver) const {
  // clear_unfinished_on_node() finds it there after a kill.
  return (fs::path(set_.run) / fmt::format("{}{}", fetched_prefix, receiver) /
          fmt::format(".trident-saving-iteration-{}", manifest_.iteration) / file)
      .string();
}

// A rank that fails continues to the end, because its peer waits for it.
void GatheredParts::transfer(Context& context, const ProcessGroup& group, const Transfer& one,
                             std::string& damage, std::string& failure) {
  std::unique_ptr<ReadFile> source;
  std::unique_ptr<OutputFile> target;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const CommunicationError&) {
      throw;
    } catch (const RequestError& error) {
      if (damage.empty()) damage = error.what();
    } catch (const NoRoom& error) {  // an older checkpoint in checkpoint.save needs no space
      if (damage.empty()) damage = error.what();
    } catch (const std::exception& error) {
      if (failure.empty()) failure = error.what();
    }
  };
  const bool sends = group.rank() == one.sender;
  attempt([&] {
    if (sends) {
      source = std::make_unique<ReadFile>(set_.path_here(one.file));
    } else {
      const std::string path = fetched(one.file, one.receiver);
      const fs::path folder = fs::path(path).parent_path();
      if (own_.empty()) {
        const fs::path top = folder.parent_path().parent_path();
        make_own_directory(set_.run);
        files_.remove(top.string());
        own_.insert(top.string());
        files_.make_directory(folder.string());
      }
      target = files_.create(path, one.bytes);
    }
  });
  constexpr std::uint64_t kPiece = checkpoint_block;
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < one.bytes; at += kPiece) {
    const auto count = static_cast<std::int64_t>(std::min(kPiece, one.bytes - at));
    const Tensor bytes = context.empty({count}, DType::u8, Category::communication);
    if (sends) {
      piece.assign(static_cast<std::size_t>(count), std::byte{0});
      attempt([&] {
        if (source) source->read_at(at, piece);
      });
      context.copy_from_host(bytes, piece);
      group.send(context, bytes, one.receiver);
    } else {
      group.receive(context, bytes, one.sender);
      context.read_on_host(bytes, [&](std::span<const std::byte> data) {
        attempt([&] {
          if (target) target->write_at(at, data);
        });
      });
    }
  }
  attempt([&] {
    if (target) target->finish();
  });
}

}  // namespace trident
