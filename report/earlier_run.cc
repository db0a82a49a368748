#include "report/earlier_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "report/metrics_file.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The text between two fixed parts of a name; "" if the name doesn't match.
std::string_view between(std::string_view name, std::string_view before, std::string_view after) {
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return {};
  }
  return name.substr(before.size(), name.size() - before.size() - after.size());
}

// TensorBoardWriter's <time>.<host>.<pid>.<n>; the host's name may have dots.
bool is_event_file(std::string_view name) {
  const std::string_view rest = between(name, "events.out.tfevents.", "");
  const auto time = rest.find('.');
  const auto n = rest.rfind('.');
  if (time == std::string_view::npos || n == time) return false;
  const auto pid = rest.rfind('.', n - 1);
  return pid > time && pid != std::string_view::npos && is_number(rest.substr(0, time)) &&
         is_number(rest.substr(pid + 1, n - pid - 1)) && is_number(rest.substr(n + 1));
}

bool is_of_a_run(std::string_view name) {
  constexpr std::array<std::string_view, 6> fixed{
      "timeline.svg", "timeline.json", "trace.json", "report.html", "run.json", "config.user.json"};
  return std::find(fixed.begin(), fixed.end(), name) != fixed.end() || is_event_file(name) ||
         is_number(between(name, "gradients-", ".safetensors")) ||
         is_number(between(name, "timeline-", ".svg")) ||
         is_number(between(name, "trace-", ".json"));
}

}  // namespace

std::string file_of_a_run(const std::string& directory) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || (is_of_a_run(name) && !is_event_file(name))) return name;
  }
  return "";
}

void remove_earlier_run(const std::string& directory) {
  std::error_code code;
  if (!fs::exists(fs::path(directory) / MetricsFile::kName, code)) return;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    if (entry.symlink_status(code).type() == fs::file_type::regular &&
        is_of_a_run(entry.path().filename().string())) {
      old.push_back(entry.path());
    }
  }
  for (const fs::path& path : old) {
    if (!fs::remove(path, code) && code) {
      throw Error(fmt::format("{}: can't remove this file of an earlier run: {}", path.string(),
                              code.message()));
    }
  }
}

}  // namespace trident
