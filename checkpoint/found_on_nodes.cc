#include "checkpoint/found_on_nodes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/files/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/kept_on_node.h"
#include "checkpoint/node_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostSets = 2;  // only sets of the latest iterations are verified
constexpr std::uint64_t kMaxText = std::uint64_t{256} << 20;  // bytes: a tokenizer's file

std::string bytes_of(const json& document) {
  std::string bytes;
  json::to_cbor(document, bytes);
  return bytes;
}

json document_of(const std::string& bytes) {
  return json::from_cbor(bytes);
}

// Equal for processes on the same host that see the same folder, whatever its path.
std::string place_key(const std::string& dir) {
  std::string boot;
  try {
    boot = read_stream("/proc/sys/kernel/random/boot_id", 4096);
  } catch (const std::exception&) {
    // Without it, hosts with equal device numbers seem to be one, and a part may not be found.
  }
  struct stat status {};
  if (::stat(dir.c_str(), &status) != 0) return boot + "/" + dir;
  return fmt::format("{}/{}/{}", boot, status.st_dev, status.st_ino);
}

// "" if it is undamaged. Throws Error if it can't be read at this moment.
std::string damage_of(const std::string& path, const SavedFile& file) {
  try {
    VerifiedFile(path, file).verify_all();
    return "";
  } catch (const RequestError& error) {
    return error.what();
  }
}

// The report of this process: the undamaged files in its share of the files here.
json verified_files(const fs::path& run, const std::vector<KeptSet>& kept, std::size_t share,
                    std::size_t shares) {
  json all = json::array();
  std::size_t turn = 0;
  for (const KeptSet& one : kept) {
    json files = json::array(), damaged = json::array();
    std::size_t index = 0;  // of the file in the manifest's order
    for (const auto& [name, file] : one.manifest.files) {
      const std::string path = (run / one.folder / name).string();
      std::error_code ignored;
      if (fs::exists(fs::symlink_status(path, ignored)) && turn++ % shares == share) {
        const std::string damage = damage_of(path, file);
        if (damage.empty()) files.push_back(index);
        if (!damage.empty()) damaged.push_back(damage);
      }
      ++index;
    }
    all.push_back({{"root", one.manifest.root},
                   {"iteration", one.manifest.iteration},
                   {"of", one.manifest.files.size()},
                   {"folder", one.folder},
                   {"files", std::move(files)},
                   {"damaged", std::move(damaged)}});
  }
  return all;
}

json json_of(const Reasons& reasons) {
  json list = json::array();
  for (const auto& [iteration, why] : reasons) list.push_back({iteration, why});
  return list;
}

// All processes of a place report the same reasons.
void add_reasons(const json& list, Reasons& reasons) {
  for (const json& one : list) {
    const auto iteration = one[0].get<std::int64_t>();
    auto why = one[1].get<std::string>();
    const auto [begin, end] = reasons.equal_range(iteration);
    if (std::any_of(begin, end, [&](const auto& known) { return known.second == why; })) continue;
    reasons.emplace(iteration, std::move(why));
  }
}

// Called on rank 0 with the reports of all processes. Returns the complete sets, the latest
// iteration first, with a process that sends the texts of each; why other sets are left out; and
// the latest set of an unknown start.
std::string complete_sets(const std::vector<std::string>& reports,
                          const std::vector<int>& place_of) {
  struct Set {
    std::int64_t iteration = 0;
    std::size_t of = 0;
    int reporter = 0;
    std::vector<std::string> damages;
    std::map<std::size_t, std::set<std::pair<int, std::string>>> holders;
  };
  std::map<std::string, Set> sets;  // by root
  json unplaced{-1, ""};
  std::string problem;
  Reasons unread, foreign;
  std::set<std::int64_t> unfinished;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const json all = document_of(reports[rank]);
    unplaced = std::max(unplaced, all["unplaced"]);
    if (problem.empty()) problem = all["problem"].get<std::string>();
    add_reasons(all["unread"], unread);
    add_reasons(all["foreign"], foreign);
    for (const json& one : all["unfinished"]) unfinished.insert(one.get<std::int64_t>());
    for (const json& one : all["sets"]) {
      Set& set = sets[one["root"].get<std::string>()];
      set.iteration = one["iteration"].get<std::int64_t>();
      set.of = one["of"].get<std::size_t>();
      set.reporter = static_cast<int>(rank);
      for (const json& damage : one["damaged"]) set.damages.push_back(damage.get<std::string>());
      for (const json& file : one["files"]) {
        set.holders[file.get<std::size_t>()].emplace(place_of[rank],
                                                     one["folder"].get<std::string>());
      }
    }
  }
  std::vector<std::pair<std::string, Set>> whole(sets.begin(), sets.end());
  std::ranges::sort(whole, std::greater(), [](const auto& one) { return one.second.iteration; });
  Reasons left;
  std::erase_if(whole, [&](const auto& one) {
    const Set& set = one.second;
    if (set.holders.size() == set.of) return false;
    if (unfinished.contains(set.iteration)) return true;
    left.emplace(
        set.iteration,
        fmt::format("iteration {} on the nodes: {} of {} files are there and undamaged{}{}",
                    set.iteration, set.holders.size(), set.of, set.damages.empty() ? "" : "; ",
                    set.damages.empty() ? "" : set.damages.front()));
    return true;
  });
  for (const auto& [iteration, why] : unread) {
    left.emplace(iteration, fmt::format("iteration {} on the nodes: {}", iteration, why));
  }
  json answer = json::array();
  for (const auto& [root, set] : whole) {
    json files = json::array();
    for (const auto& [file, holders] : set.holders) {
      json copies = json::array();
      for (const auto& [place, folder] : holders) copies.push_back({place, folder});
      files.push_back(std::move(copies));
    }
    answer.push_back({{"root", root}, {"reporter", set.reporter}, {"files", std::move(files)}});
  }
  return bytes_of({{"sets", std::move(answer)},
                   {"left", json_of(left)},
                   {"foreign", json_of(foreign)},
                   {"unplaced", std::move(unplaced)},
                   {"problem", problem}});
}

bool is_part(const std::string& file) {
  return file.starts_with("trident/part-");
}

// The manifest and the small files of a set, for all processes.
json texts_of(const fs::path& run, const KeptSet& kept) {
  const std::string folder = (run / kept.folder).string();
  json texts = json::object();
  texts[manifest_name] = read_file((fs::path(folder) / manifest_name).string(), max_manifest_bytes);
  CheckpointReader reader(folder, kept.manifest);
  for (const auto& [name, file] : kept.manifest.files) {
    if (is_part(name)) continue;
    if (file.bytes > kMaxText) throw RequestError(name + ": is too large");
    texts[name] = reader.text(name);
  }
  return texts;
}

std::string start_of(const Manifest& manifest) {
  const auto start = manifest.made_by.find("start");
  return start == manifest.made_by.end() ? "" : start->second;
}

// The latest set of a start that `starts` doesn't list, with its folder.
json unplaced_of(const std::vector<KeptSet>& kept, const Starts& starts) {
  json latest{-1, ""};
  for (const KeptSet& one : kept) {
    if (starts.knows(start_of(one.manifest))) continue;
    latest = std::max(latest, json{one.manifest.iteration, one.folder});
  }
  return latest;
}

// Keeps the latest sets that belong to the run's present history.
void keep_latest(std::vector<KeptSet>& kept, const Starts& starts) {
  std::erase_if(kept, [&](const KeptSet& one) {
    return !starts.leads_here(start_of(one.manifest), one.manifest.iteration);
  });
  std::set<std::int64_t> iterations;
  for (const KeptSet& one : kept) iterations.insert(one.manifest.iteration);
  while (iterations.size() > kMostSets) iterations.erase(iterations.begin());
  std::erase_if(kept,
                [&](const KeptSet& one) { return !iterations.contains(one.manifest.iteration); });
}

json json_of(const Starts& starts) {
  json list = json::array();
  for (const Starts::Start& one : starts.list) list.push_back({one.id, one.after});
  return {{"run", starts.run}, {"starts", std::move(list)}};
}

void require_none(const json& problem) {
  if (const auto text = problem.get<std::string>(); !text.empty()) throw Error(text);
}

Starts starts_of(const json& document) {
  Starts starts{.run = document["run"].get<std::string>()};
  for (const json& one : document["starts"]) {
    starts.list.push_back({one[0].get<std::string>(), one[1].get<std::int64_t>()});
  }
  return starts;
}

}  // namespace

int NodeSet::place(int rank) const {
  return place_of.size() == 1 ? place_of.front() : place_of.at(static_cast<std::size_t>(rank));
}

std::string NodeSet::path_here(const std::string& file) const {
  const auto found = parts.find(file);
  if (found == parts.end()) return "";
  const auto copy = std::ranges::find(found->second, own_place, &Copy::place);
  if (copy == found->second.end()) return "";
  return (fs::path(run) / copy->folder / file).string();
}

FoundOnNodes find_on_nodes(const std::string& dir, const std::string& save, int rank,
                           const std::function<Starts()>& starts, const AskProcesses& ask) {
  // Learn which processes share a place, and which run to search for.
  const json places = document_of(ask(
      bytes_of(dir.empty() ? "" : place_key(dir)), [&](const std::vector<std::string>& reports) {
        json keys = json::array();
        for (const std::string& key : reports) keys.push_back(document_of(key));
        std::string problem;
        Starts known;
        try {
          known = starts();
        } catch (const std::exception& error) {  // reported to all processes
          problem = error.what();
        }
        return bytes_of(
            {{"problem", problem}, {"starts", json_of(known)}, {"places", std::move(keys)}});
      }));
  require_none(places["problem"]);
  const Starts branch = starts_of(places["starts"]);
  if (branch.run.empty()) return {};
  const auto keys = places["places"].get<std::vector<std::string>>();
  const std::size_t own = std::min(static_cast<std::size_t>(rank), keys.size() - 1);
  NodeSet common{.run = run_folder_in(dir, branch.run, save)};
  std::size_t share = 0, shares = 0;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    common.place_of.push_back(static_cast<int>(std::ranges::find(keys, keys[r]) - keys.begin()));
    if (keys[r] != keys[own]) continue;
    if (r == own) share = shares;
    ++shares;
  }
  common.own_place = common.place_of[own];

  FoundOnNodes found;
  std::vector<KeptSet> kept;
  json own_report{{"sets", json::array()},    {"unread", json::array()},
                  {"foreign", json::array()}, {"unfinished", json::array()},
                  {"unplaced", json{-1, ""}}, {"problem", ""}};
  try {
    Kept here;
    if (!dir.empty()) here = kept_in(common.run);
    own_report["unread"] = json_of(here.unread);
    own_report["foreign"] = json_of(here.foreign);
    own_report["unfinished"] = here.unfinished;
    kept = std::move(here.sets);
    found.listing = listing_of(kept);
    own_report["unplaced"] = unplaced_of(kept, branch);
    keep_latest(kept, branch);
    own_report["sets"] = verified_files(common.run, kept, share, shares);
  } catch (const std::exception& error) {
    own_report["problem"] = error.what();
  }
  const json answer =
      document_of(ask(bytes_of(own_report), [&](const std::vector<std::string>& reports) {
        return complete_sets(reports, common.place_of);
      }));
  require_none(answer["problem"]);
  add_reasons(answer["left"], found.left);
  add_reasons(answer["foreign"], found.foreign);
  found.unplaced = answer["unplaced"][0].get<std::int64_t>();
  found.unplaced_in = answer["unplaced"][1].get<std::string>();
  const json& whole = answer["sets"];

  json reports{{"texts", json::object()}, {"problem", ""}};
  for (const json& one : whole) {
    if (one["reporter"] != rank) continue;
    const auto source = std::ranges::find(kept, one["root"].get<std::string>(),
                                          [](const KeptSet& k) { return k.manifest.root; });
    if (source == kept.end()) continue;
    try {
      reports["texts"][source->manifest.root] = texts_of(common.run, *source);
    } catch (const RequestError&) {
      // It was removed meanwhile; no process can use it.
    } catch (const std::exception& error) {
      reports["problem"] = error.what();
    }
  }
  const json common_texts =
      document_of(ask(bytes_of(reports), [](const std::vector<std::string>& given) {
        json all{{"texts", json::object()}, {"problem", ""}};
        for (const std::string& one : given) {
          const json given_one = document_of(one);
          all["texts"].update(given_one["texts"]);
          if (all["problem"] == "") all["problem"] = given_one["problem"];
        }
        return bytes_of(all);
      }));
  require_none(common_texts["problem"]);
  const json& texts = common_texts["texts"];

  for (const json& one : whole) {
    const auto root = one["root"].get<std::string>();
    if (!texts.contains(root)) continue;
    NodeSet set = common;
    for (const auto& [name, text] : texts[root].items()) set.texts[name] = text.get<std::string>();
    FoundOnNodes::One& next = found.list.emplace_back();
    next.manifest = parse_manifest(set.texts[manifest_name], manifest_name);
    if (next.manifest.root != root) {  // it was replaced meanwhile
      found.list.pop_back();
      continue;
    }
    std::size_t index = 0;
    for (const auto& [name, file] : next.manifest.files) {
      std::vector<NodeSet::Copy>& copies = set.parts[name];
      for (const json& copy : one["files"][index++]) {
        copies.push_back({copy[0].get<int>(), copy[1].get<std::string>()});
      }
    }
    next.set = std::make_shared<const NodeSet>(std::move(set));
  }
  return found;
}

}  // namespace trident
