#include "report/metrics_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files/json.h"

namespace trident {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 30;

nlohmann::ordered_json parse_line(std::string_view text, const std::string& path,
                                  std::size_t number) {
  auto line = ordered_json_or_null(text);
  if (!line.is_object() || !line.contains("iteration") || !line["iteration"].is_number_integer()) {
    throw RequestError(
        fmt::format("{}:{}: needs a JSON object with an integer \"iteration\"", path, number));
  }
  return line;
}

// Calls visit(line, number) for each complete line until it returns false. Returns the offset of
// the first line not visited, or of the incomplete rest.
template <class Visit>
std::size_t each_line(std::string_view text, Visit visit) {
  std::size_t begin = 0;
  for (std::size_t number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos || !visit(text.substr(begin, end - begin), number)) {
      return begin;
    }
    begin = end + 1;
  }
}

struct Until {
  std::size_t bytes = 0;              // of the lines up to the iteration
  std::int64_t first = 1, lines = 0;  // the first iteration, and the number of lines
};

Until lines_until(const std::string& path, std::int64_t iteration) {
  Until until;
  until.bytes =
      each_line(read_file(path, kMaxBytes), [&](std::string_view line, std::size_t number) {
        const auto own = parse_line(line, path, number)["iteration"].get<std::int64_t>();
        if (own <= iteration && until.lines++ == 0) until.first = own;
        return own <= iteration;
      });
  return until;
}

std::string path_in(const std::string& directory) {
  return (std::filesystem::path(directory) / MetricsFile::kName).string();
}

}  // namespace

MetricsFile MetricsFile::create(const std::string& directory, bool overwrite) {
  require_free(directory, overwrite);
  // A link is removed, because its target belongs to another user or program.
  std::error_code ignored;
  const std::filesystem::path path = path_in(directory);
  if (std::filesystem::is_symlink(path, ignored)) std::filesystem::remove(path, ignored);
  return MetricsFile(path_in(directory), true);
}

void MetricsFile::require_free(const std::string& directory, bool overwrite) {
  const std::string path = path_in(directory);
  std::error_code ignored;
  const auto found = std::filesystem::status(path, ignored);  // follows links
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    throw RequestError(path + ": not a regular file; remove it, or choose another logging.dir");
  }
  if (!overwrite && std::filesystem::exists(found)) {
    throw RequestError(fmt::format(
        "{}: exists already; choose another logging.dir, or set logging.overwrite to replace it",
        path));
  }
}

MetricsFile MetricsFile::resume(const std::string& directory, std::int64_t iteration) {
  const std::string path = path_in(directory);
  std::error_code code;
  if (std::filesystem::exists(path, code)) {
    std::filesystem::resize_file(path, lines_until(path, iteration).bytes, code);
    if (code) throw Error(fmt::format("{}: truncating it failed: {}", path, code.message()));
  }
  return MetricsFile(path, false);
}

std::int64_t MetricsFile::require_resumable(const std::string& directory, std::int64_t iteration) {
  const std::string path = path_in(directory);
  std::error_code code;
  const Until until = std::filesystem::exists(path, code) ? lines_until(path, iteration) : Until{};
  const std::int64_t first = std::max<std::int64_t>(0, until.first);  // none are below 0
  return std::max<std::int64_t>(0, iteration + 1 - first - until.lines);
}

void MetricsFile::append(const nlohmann::ordered_json& line) {
  file_.append(json_text(line) + "\n");
}

std::vector<nlohmann::ordered_json> read_metrics(const std::string& path, bool growing) {
  const std::string text = read_file(path, kMaxBytes);
  std::vector<nlohmann::ordered_json> lines;
  std::size_t last = 0;
  const std::size_t end = each_line(text, [&](std::string_view line, std::size_t number) {
    lines.push_back(parse_line(line, path, number));
    last = number;
    return true;
  });
  if (end != text.size() && !growing) {
    throw RequestError(fmt::format("{}:{}: the last line is incomplete", path, last + 1));
  }
  return lines;
}

}  // namespace trident
