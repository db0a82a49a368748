// Compares a machine's predictions with the measurements of a sweep, and fits the machine to them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/units.h"
#include "planner/sweep/machine_fit.h"
#include "planner/sweep/sweep.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

bool is_compared(const Json& point) {
  return point.contains("predicted_ms") && point.contains("compared_ms") && point["status"] == "ok";
}

// Returns the median over points of their iterations' deviation from the median.
double noise_of(const Json& points) {
  std::vector<double> differences;
  for (const Json& point : points) {
    if (is_compared(point) && point["noise"].is_number()) differences.push_back(point["noise"]);
  }
  return median(differences);
}

Json agreement_json(const std::vector<double>& predicted, const std::vector<double>& measured,
                    double noise) {
  const Agreement found = agreement(predicted, measured, noise);
  return {{"points", predicted.size()},
          {"median_error", found.median_error},
          {"ninth_decile", found.ninth_decile},
          {"order", found.order},
          {"choice", found.choice}};
}

// Returns the points that are compared with no prediction, by reason.
std::map<std::string, std::vector<std::string>> left_out(const Json& sweep) {
  std::map<std::string, std::vector<std::string>> points;
  for (const Json& point : sweep["points"]) {
    if (is_compared(point)) continue;
    const std::string reason = point["status"] == "ok" ? point.value("not_compared", std::string())
                                                       : point["status"].get<std::string>();
    if (!reason.empty()) points[reason].push_back(point["point"]);
  }
  return points;
}

std::string left_out_text(const Json& sweep) {
  std::string text;
  for (const auto& [reason, points] : left_out(sweep)) {
    text += fmt::format("left out{}: {}: {}\n", sweep.contains("fit") ? ", of the fit too" : "",
                        fmt::join(points, "; "), reason);
  }
  return text;
}

}  // namespace

void add_agreement(Json& sweep) {
  const double noise = noise_of(sweep["points"]);
  // Compare seconds per token, since batches may differ.
  std::vector<double> predicted, measured, predicted_whole, measured_whole;
  for (const Json& point : sweep["points"]) {
    if (!is_compared(point)) continue;
    const double tokens = point["tokens"];
    predicted.push_back(point["predicted_ms"].get<double>() / tokens);
    measured.push_back(point["compared_ms"].get<double>() / tokens);
    if (point["compared"] != "step" || !point.contains("efficiency")) continue;
    predicted_whole.push_back(predicted.back());
    measured_whole.push_back(measured.back());
  }
  if (predicted.empty()) return;
  Json& agreement_of_sweep = sweep["agreement"];
  agreement_of_sweep = agreement_json(predicted, measured, noise);
  // The choice is among layouts of the same work whose whole step was measured.
  agreement_of_sweep["choice"] = nullptr;
  if (predicted_whole.size() > 1) {
    agreement_of_sweep["choice"] = agreement(predicted_whole, measured_whole, noise).choice;
  }
  agreement_of_sweep["noise"] = noise;
  agreement_of_sweep["left_out"] = left_out(sweep);
}

Machine fit_sweep(Json& sweep, const SweepPlan& plan, const Machine& machine) {
  std::vector<FitPoint> points;
  std::vector<Json*> of_point;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    Json& point = sweep["points"][i];
    if (!is_compared(point)) continue;
    of_point.push_back(&point);
    points.push_back({plan.points[i].label, &plan.points[i].config, plan.points[i].replayed,
                      1e-3 * point["compared_ms"].get<double>()});
  }
  const MachineFit fit = fit_machine(machine, points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    (*of_point[i])["predicted_before_fit_ms"] = 1e3 * fit.before[i];
    (*of_point[i])["predicted_ms"] = 1e3 * fit.after[i];
  }
  const auto constants = [](const Machine& of) -> Json {
    return {{"products", of.efficiency.products},
            {"memory", of.efficiency.memory},
            {"links", of.efficiency.links}};
  };
  sweep["fit"] = {{"before", constants(machine)}, {"after", constants(fit.machine)}};
  sweep["predicted_for"] = fit.machine.name;
  add_agreement(sweep);
  Machine fitted = fit.machine;
  double sum = 0, most = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double off = std::abs(fit.after[i] / points[i].seconds - 1);
    sum += off;
    most = std::max(most, off);
  }
  constexpr double least = 1e-4;  // the file needs a positive number
  fitted.error = {.usual = std::max(least, sum / static_cast<double>(points.size())),
                  .most = std::max(least, most),
                  .of = fmt::format("{} of the sweep that it was fitted to",
                                    counted(static_cast<std::int64_t>(points.size()), "step"))};
  return fitted;
}

std::string agreement_text(const Json& sweep) {
  if (sweep["predicted_for"].is_null()) return "";
  if (!sweep.contains("agreement")) return left_out_text(sweep);
  std::string text;
  std::size_t width = 8;
  for (const Json& point : sweep["points"]) {
    width = std::max(width, point["point"].get<std::string>().size());
  }
  text += fmt::format(
      "\npredictions for {}, compared with the median iterations\n{:<{}}  {:>10} "
      "{:>10} {:>8}  of\n",
      sweep["predicted_for"].get<std::string>(), "", width, "predicted", "measured ms", "off");
  for (const Json& point : sweep["points"]) {
    if (!is_compared(point)) continue;
    const double predicted = point["predicted_ms"], measured = point["compared_ms"];
    text += fmt::format("{:<{}}  {:>10.1f} {:>10.1f} {:>+7.1f}%  {}\n",
                        point["point"].get<std::string>(), width, predicted, measured,
                        100 * (predicted / measured - 1), point["compared"].get<std::string>());
  }
  const Json& agreement_of_sweep = sweep["agreement"];
  text += left_out_text(sweep);
  text += fmt::format(
      "{}: off by {:.1f}% (median), {:.1f}% (90th percentile); order {:.3f} (Spearman, "
      "within {:.1f}% equal)",
      counted(agreement_of_sweep["points"], "point"),
      100 * agreement_of_sweep["median_error"].get<double>(),
      100 * agreement_of_sweep["ninth_decile"].get<double>(),
      agreement_of_sweep["order"].get<double>(), 100 * agreement_of_sweep["noise"].get<double>());
  if (agreement_of_sweep["choice"].is_number()) {
    text += fmt::format("; the best by prediction is {:.1f}% over the best",
                        100 * agreement_of_sweep["choice"].get<double>());
  }
  text += "\n";
  if (sweep.contains("fit")) {
    const auto constants = [](const Json& of) {
      return fmt::format("products {:.3f}, memory {:.3f}, links {:.3f}",
                         of["products"].get<double>(), of["memory"].get<double>(),
                         of["links"].get<double>());
    };
    text += fmt::format("fitted: {}; before {}\n", constants(sweep["fit"]["after"]),
                        constants(sweep["fit"]["before"]));
  }
  return text;
}

}  // namespace trident
