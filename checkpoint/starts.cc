#include "checkpoint/starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"

namespace trident {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFile = 4 << 20;  // bytes
constexpr std::size_t kKept = 10'000;        // starts

std::string file_in(const std::string& save) {
  return (std::filesystem::path(save) / ".trident-starts").string();
}

}  // namespace

bool Starts::leads_here(const std::string& id, std::int64_t iteration) const {
  for (auto start = list.rbegin(); start != list.rend(); ++start) {
    if (start->id == id) return true;
    if (start->after < iteration) return false;
  }
  return false;
}

bool Starts::knows(const std::string& id) const {
  return std::ranges::find(list, id, &Start::id) != list.end();
}

bool Starts::any_on_nodes() const {
  return std::ranges::any_of(list, &Start::on_nodes);
}

Starts read_starts(const std::string& save) {
  Starts starts;
  const std::string path = file_in(save);
  std::error_code code;
  const auto found = std::filesystem::symlink_status(path, code);
  if (found.type() == std::filesystem::file_type::not_found) return starts;
  try {
    const json document = parse_json(read_file(path, kMaxFile), path);
    starts.run = document.at("run").get<std::string>();
    for (const json& one : document.at("starts")) {
      if (!one.at("after").is_number_integer()) throw Error("\"after\" is no whole number");
      starts.list.push_back({.id = one.at("id").get<std::string>(),
                             .after = one.at("after").get<std::int64_t>(),
                             .on_nodes = one.value("on_nodes", false)});
    }
  } catch (const std::exception& error) {
    throw Error(fmt::format(
        "{}: it lists which checkpoints on nodes belong to the run's history, and can't be read "
        "({}); set checkpoint.load to an iteration of checkpoint.save to resume without them",
        path, error.what()));
  }
  return starts;
}

Starts read_starts(const std::string& save, const std::string& run) {
  Starts starts = read_starts(save);
  return starts.run == run ? starts : Starts{.run = run};
}

namespace {

void write_starts(FileSystem& files, const std::string& save, const Starts& starts) {
  json list = json::array();
  for (const auto& [id, after, on_nodes] : starts.list) {
    json one{{"id", id}, {"after", after}};
    if (on_nodes) one["on_nodes"] = true;
    list.push_back(std::move(one));
  }
  const json document{{"run", starts.run}, {"starts", std::move(list)}};
  files.replace(file_in(save), json_text(document) + "\n");
}

}  // namespace

std::string record_start(FileSystem& files, const std::string& save, const std::string& run,
                         std::int64_t after) {
  Starts starts = read_starts(save, run);
  std::random_device random;
  starts.list.push_back({fmt::format("{:08x}{:08x}", random(), random()), after});
  if (starts.list.size() > kKept) starts.list.erase(starts.list.begin());
  write_starts(files, save, starts);
  return starts.list.back().id;
}

void record_on_nodes(FileSystem& files, const std::string& save, const std::string& run,
                     const std::string& id) {
  Starts starts = read_starts(save, run);
  bool changes = false;
  for (Starts::Start& one : starts.list) {
    const bool saved = !id.empty() && (one.on_nodes || one.id == id);
    changes = changes || one.on_nodes != saved;
    one.on_nodes = saved;
  }
  if (changes) write_starts(files, save, starts);
}

}  // namespace trident
