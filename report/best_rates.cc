#include "report/best_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/units.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

constexpr double most_apart = 0.15;
constexpr double hardly_by_load = 0.1;  // below this share, the kept rate may be wrong
constexpr std::uint64_t most_bytes = 1 << 20;
constexpr double fastest = 1e21;  // FLOP/s of a machine; a higher number is damage

}  // namespace

std::string name_of(const MachineKind& kind) {
  std::string name = kind.processor;
  if (!kind.instructions.empty()) name += ", " + kind.instructions;
  if (kind.threads > 0) name += ", " + counted(kind.threads, "thread");
  name += ", " + kind.dtype;
  if (!kind.way.empty()) name += " " + kind.way;
  return name;
}

void raise(BestRates& rates, const std::string& kind, double rate) {
  if (!(rate > 0 && rate < fastest)) return;
  double& best = rates[kind];
  best = std::max(best, rate);
}

void raise(BestRates& rates, const BestRates& more) {
  for (const auto& [kind, rate] : more) raise(rates, kind, rate);
}

double JobRate::total() const {
  double sum = 0;
  for (const auto& [kind, count] : machines) {
    const auto found = best.find(kind);
    if (found == best.end()) return 0;
    sum += count * found->second;
  }
  return sum;
}

bool JobRate::reached(double rate) {
  const double before = total();
  if (!(before > 0 && rate > before && rate < fastest)) return false;
  for (const auto& [kind, count] : machines) best[kind] *= rate / before;
  return true;
}

std::string busy_text(const std::string& kind, const MeasuredRate& measured, double best,
                      const std::string& file) {
  if (!(best > 0) || measured.median >= (1 - most_apart) * best) return "";
  const double share = measured.median / best;
  const bool wrong = share < hardly_by_load && !file.empty();
  return fmt::format(
      "busy machine{}: matrix products run at {} of its best known rate ({:.4g} GFLOP/s; {}{}), "
      "so {} of this run are unreliable",
      wrong ? ", or a wrong rate kept" : "", percent_text(share, 0), best * 1e-9, kind,
      file.empty() ? "" : "; kept in " + printable(file), wrong ? "times or MFU" : "times");
}

BestRates read_best_rates(const std::string& path) {
  BestRates rates;
  try {
    std::error_code none;
    if (path.empty() || !std::filesystem::is_regular_file(path, none)) return rates;
    const Json document = ordered_json_or_null(read_file(path, most_bytes));
    if (!document.is_object()) return rates;
    for (const auto& [kind, rate] : document.items()) {
      if (rate.is_number()) raise(rates, kind, rate.get<double>());
    }
  } catch (const std::exception&) {  // the rate is measured again
  }
  return rates;
}

void keep_best_rates(const std::string& path, const BestRates& rates) noexcept {
  try {
    if (path.empty()) return;
    BestRates all = read_best_rates(path);
    const BestRates before = all;
    raise(all, rates);
    if (all == before) return;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file_atomic(path, json_text(Json(all), 1) + "\n");
  } catch (const std::exception&) {  // for example, a home directory that is read-only or full
  }
}

}  // namespace trident
