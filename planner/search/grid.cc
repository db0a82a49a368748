#include "planner/search/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files/json.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "settings/peer_keys.h"

namespace trident {
namespace {

std::map<std::string, std::string> short_names(const ParallelConfig& parallel) {
  std::map<std::string, std::string> names{
      {"schedule", "pipeline.schedule"},
      {"zero", "zero_optimization.stage"},
      {"micro_batch_size", "batch.micro_batch_size"},
      {"global_batch_size", "batch.global_batch_size"},
      {"recompute", "activation_checkpointing.granularity"},
      {"chunks", "parallel.virtual_pipeline_model_parallel_size"},
      {"sp", "parallel.sequence_parallel"},
      {"threads", "runtime.threads_per_rank"},
      {"dtype", "precision.dtype"},
      {std::string(context_axis), "parallel.context_parallel_size"},
      {"transport", "runtime.transport"}};
  for (const MeshAxis& axis : parallel.axes()) {
    if (!axis.key.empty()) names[axis.name] = "parallel." + axis.key;
  }
  return names;
}

[[noreturn]] void refuse_grid(const std::string& key, const std::string& problem) {
  throw RequestError(
      fmt::format("--grid: {}{}{}", printable(key), key.empty() ? "" : ": ", problem));
}

class GridReader {
 public:
  explicit GridReader(const ParallelConfig& parallel) : names_(short_names(parallel)) {}

  void add(const std::string& name, std::vector<std::string> values) {
    if (!given_.insert(name).second) refuse_grid(name, "is given twice");
    if (values.empty()) refuse_grid(name, "has no value");
    std::set<std::string> known;
    for (const std::string& value : values) {
      if (value.empty()) refuse_grid(name, "has an empty value");
      if (!known.insert(value).second)
        refuse_grid(name, "has the value " + printable(value) + " twice");
    }
    keys_.push_back({name, path_of(name), std::move(values)});
    if (!paths_.insert(keys_.back().path).second) refuse_grid(name, "is given under two names");
  }
  std::vector<GridKey> take() { return std::move(keys_); }

 private:
  std::string path_of(const std::string& name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    if (name.find('.') != std::string::npos) return name;
    std::vector<std::string> known;
    std::string all;
    for (const auto& [short_name, path] : names_) {
      known.push_back(short_name);
      all += (all.empty() ? "" : ", ") + short_name;
    }
    if (const PeerKey* const peers = find_peer_key("", name)) {
      if (peers->path.empty()) refuse_grid(name, "no such key; " + directions(*peers));
      std::string path(peers->path.substr(1));
      std::ranges::replace(path, '/', '.');
      refuse_grid(name, "no such key; here it is " + path);
    }
    refuse_grid(name,
                fmt::format("no such key; did you mean {}? There are {}, and config keys with "
                            "their dots, as model.num_layers",
                            nearest(name, known), all));
  }

  std::map<std::string, std::string> names_;
  std::set<std::string> given_, paths_;
  std::vector<GridKey> keys_;
};

std::vector<std::string> split_at(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void read_json(std::string_view text, GridReader& reader) {
  const nlohmann::json document = parse_json(text, "grid");
  if (!document.is_object()) refuse_grid("", "needs an object of keys with lists of values");
  for (const auto& [name, list] : document.items()) {
    if (!list.is_array()) refuse_grid(name, "needs a list of values");
    std::vector<std::string> values;
    for (const nlohmann::json& value : list) {
      values.push_back(value.is_string() ? value.get<std::string>() : json_text(value));
    }
    reader.add(name, std::move(values));
  }
}

void read_words(std::string_view text, GridReader& reader) {
  std::string spaced(text);
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  for (const std::string& word : split_at(spaced, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) refuse_grid(word, "needs KEY=VALUE,VALUE");
    const std::string values = word.substr(equals + 1);
    reader.add(word.substr(0, equals),
               values.empty() ? std::vector<std::string>{} : split_at(values, ','));
  }
}

}  // namespace

std::vector<GridKey> parse_grid(std::string_view text, const ParallelConfig& parallel,
                                std::int64_t most) {
  GridReader reader(parallel);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    read_json(text, reader);
  } else {
    read_words(text, reader);
  }
  std::vector<GridKey> keys = reader.take();
  if (keys.empty()) refuse_grid("", "has no key; try \"tp=1,2 pp=1,2\"");
  std::int64_t points = 1;
  for (const GridKey& key : keys) {
    const auto values = static_cast<std::int64_t>(key.values.size());
    if (points > most / values) {
      refuse_grid("", fmt::format("has more than {} points; leave some values out", most));
    }
    points *= values;
  }
  return keys;
}

std::vector<GridPoint> grid_points(const std::vector<GridKey>& keys) {
  std::vector<GridPoint> points{{}};
  for (const GridKey& key : keys) {
    std::vector<GridPoint> more;
    for (const GridPoint& point : points) {
      for (const std::string& value : key.values) {
        GridPoint& next = more.emplace_back(point);
        next.label += fmt::format("{}{}={}", next.label.empty() ? "" : " ", key.name, value);
        next.set.push_back(fmt::format("{}={}", key.path, value));
      }
    }
    points = std::move(more);
  }
  return points;
}

}  // namespace trident
