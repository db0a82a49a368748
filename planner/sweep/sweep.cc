#include "planner/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "base/median.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "planner/sweep/sweep_runs.h"
#include "report/best_rates.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Returns the mean over all runs of a point, weighted by their times and clamped to their range
// against rounding.
double mean_of(const std::vector<nlohmann::json>& runs, const char* key) {
  double sum = 0, seconds = 0;
  double least = runs.front().value(key, 0.0), most = least;
  for (const auto& run : runs) {
    const double own = sum_of(run.at("iteration_time_ms").get<std::vector<double>>());
    const double value = run.value(key, 0.0);
    sum += own * value;
    seconds += own;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return seconds > 0 ? std::clamp(sum / seconds, least, most) : 0;
}

// Returns the median deviation of iterations from their median, as a fraction of it.
double spread_of(std::vector<double> times) {
  const double middle = median(times);
  for (double& time : times) time = std::abs(time / middle - 1);
  return middle > 0 ? median(times) : 0;
}

// Returns the best rates of products that any run reports for its machine.
BestRates rates_of(const SweepRuns& runs) {
  BestRates best;
  for (const auto& [label, lines] : runs.of_point) {
    for (const nlohmann::json& run : lines) {
      if (run.contains("product_rates")) raise(best, run["product_rates"].get<BestRates>());
    }
  }
  return best;
}

// Returns the MFU, or null where the best rates aren't known.
Json mfu_of(const std::vector<nlohmann::json>& runs, const BestRates& best) {
  const JobRate rate{runs.back().value("product_rate_of", std::map<std::string, double>()), best};
  if (!(rate.total() > 0)) return nullptr;
  return std::min(1.0, mean_of(runs, "flops_per_second") / rate.total());
}

Json point_json(const SweepPoint& point, std::vector<nlohmann::json> runs, int repeats,
                const BestRates& best) {
  std::erase_if(runs, [&](const auto& run) { return run.value("repeat", 0) >= repeats; });
  const Config& c = point.config;
  Json json{{"point", point.label},
            {"set", point.set},
            {"status", runs.empty() ? "not run" : "ok"},
            {"reason", ""},
            {"ranks", c.world_size()},
            {"processors", point.processors}};
  for (const MeshAxis& axis : c.parallel.axes()) json["axes"][axis.name] = axis.size;
  json["schedule"] = schedule_name(c.pipeline);
  json["chunks"] = c.parallel.virtual_pipeline_model_parallel_size;
  json["zero"] = c.zero_optimization.stage;
  json["micro_batch_size"] = c.batch.micro_batch_size;
  json["micro_batches"] = c.num_microbatches();
  json["global_batch_size"] = c.batch.global_batch_size;
  json["tokens"] = c.batch.global_batch_size * c.data.sequence_length;
  json["planned_memory"] = point.planned_peak;
  if (!point.notes.empty()) json["notes"] = point.notes;
  if (point.simulated_seconds) json["predicted_ms"] = *point.simulated_seconds * 1e3;
  std::vector<nlohmann::json> good;
  for (const nlohmann::json& run : runs) {
    if (run.value("status", "") == "ok") {
      good.push_back(run);
    } else {
      json["status"] = run.value("status", "failed");
      json["reason"] = run.value("reason", "");
    }
  }
  if (good.empty()) return json;
  std::vector<double> times, replays, speeds;
  for (const nlohmann::json& run : good) {
    const auto own = run.at("iteration_time_ms").get<std::vector<double>>();
    times.insert(times.end(), own.begin(), own.end());
    const auto replayed = run.value("replays_ms", std::vector<double>());
    replays.insert(replays.end(), replayed.begin(), replayed.end());
    speeds.push_back(run.at("tokens_per_second"));
  }
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  const double tokens = static_cast<double>(c.batch.global_batch_size * c.data.sequence_length);
  json["runs"] = good.size();
  json["step_ms"] = sum_of(times) / static_cast<double>(times.size());
  json["median_ms"] = median(times);
  json["tokens_per_second"] = {{"all", mean_of(good, "tokens_per_second")},
                               {"median", tokens / median(times) * 1e3},
                               {"least", *slowest},
                               {"most", *fastest}};
  json["mfu"] = mfu_of(good, best);
  for (const char* key : {"bubble_ratio", "bubble_ratio_wall", "bubble_predicted"}) {
    json[key] = mean_of(good, key);
  }
  json["replayed_ms"] = replays.empty() ? Json(nullptr) : Json(median(replays));
  json["fastest_ms"] = *std::min_element(times.begin(), times.end());
  const std::vector<double>& compared = point.replayed ? replays : times;
  json["noise"] = compared.empty() ? Json(nullptr) : Json(spread_of(compared));
  if (point.simulated_seconds) {
    json["compared"] = point.replayed ? "replayed step" : "step";
    if (median(compared) > 0) {
      json["compared_ms"] = median(compared);
    } else {
      json["not_compared"] =
          "its ranks outnumber the machine's devices, and an asynchronous schedule, whose "
          "iterations overlap, has no replayed step";
    }
  }
  json["bytes_sent"] = good.back().at("bytes_sent");
  json["peak_memory"] = mean_of(good, "peak_memory");
  json["loss"] = good.back().at("loss");
  for (const char* part : {"products", "kernels", "waiting", "rest"}) {
    // Kernels on a GPU aren't timed, so their part is left out.
    const auto is_timed = [&](const auto& run) {
      return run.at("parts_ms").value("kernels", 0.0) > 0;
    };
    const bool kernel = part[0] == 'p' || part[0] == 'k';
    if (kernel && std::none_of(good.begin(), good.end(), is_timed)) continue;
    double sum = 0;  // all runs have the same number of iterations
    for (const auto& run : good) sum += run.at("parts_ms").value(part, 0.0);
    json["parts_ms"][part] = sum / static_cast<double>(good.size());
  }
  return json;
}

// Compares points of the same work with the first point that ran.
void compare(Json& points, const std::vector<SweepPoint>& planned) {
  const Json* base = nullptr;
  std::string base_work;
  std::map<std::string, double> losses;
  for (std::size_t i = 0; i < points.size(); ++i) {
    Json& point = points[i];
    if (!point.contains("tokens_per_second")) continue;
    if (base == nullptr) base = &point, base_work = planned[i].same_work;
    const auto speed = [](const Json& of) { return of["tokens_per_second"]["all"].get<double>(); };
    const auto processors = [](const Json& of) { return of["processors"].get<double>(); };
    if (planned[i].same_work == base_work) {
      point["speed_up"] = speed(point) / speed(*base);
      point["efficiency"] = speed(point) / processors(point) / (speed(*base) / processors(*base));
    }
    if (!point["loss"].is_number()) {
      point["loss_differs"] = true;
      continue;
    }
    const double loss = point["loss"];
    const double tolerance = planned[i].config.precision.dtype == "fp32" ? 1e-4 : 2e-2;
    const auto [at, added] = losses.try_emplace(planned[i].same_loss, loss);
    point["loss_differs"] =
        std::abs(loss - at->second) > tolerance * std::max(1.0, std::abs(at->second));
  }
}

// Returns the folders of the last successful runs of the fastest and the slowest point; the report
// draws their timelines.
Json timelines_of(const Json& points, const SweepRequest& request, const SweepPlan& plan,
                  SweepRuns& runs) {
  std::optional<std::size_t> best, worst;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].contains("efficiency") || points[i]["ranks"] == 1) continue;
    const auto speed = [&](std::size_t at) {
      return points[at]["tokens_per_second"]["all"].get<double>();
    };
    if (!best || speed(i) > speed(*best)) best = i;
    if (!worst || speed(i) < speed(*worst)) worst = i;
  }
  Json timelines = Json::array();
  const auto add = [&](const char* what, std::size_t at) {
    const SweepPoint& point = plan.points[at];
    int last = -1;  // the last run that ended well
    for (const nlohmann::json& run : runs.of_point[point.label]) {
      if (run.value("status", "") == "ok") last = std::max(last, run.value("repeat", -1));
    }
    const std::string folder = run_folder(request, point, last) + "/run";
    timelines.push_back({{"what", what}, {"point", points[at]["point"]}, {"run", folder}});
  };
  if (best) add("fastest of several ranks", *best);
  if (worst && worst != best) add("slowest of several ranks", *worst);
  return timelines;
}

}  // namespace

nlohmann::ordered_json run_sweep(const SweepRequest& request, const SweepPlan& plan,
                                 const nlohmann::ordered_json& machine) {
  SweepRuns runs = run_points(request, plan, machine);
  const BestRates best = rates_of(runs);
  Json points = Json::array(), invalid = Json::array(), same = Json::array();
  for (const SweepPoint& point : plan.points) {
    points.push_back(point_json(point, runs.of_point[point.label], request.repeats, best));
  }
  for (const auto& [label, reason] : plan.not_predicted) {
    for (Json& point : points) {
      if (point["point"] == label) point["not_compared"] = reason;
    }
  }
  compare(points, plan.points);
  Json base_line = nullptr;
  for (const Json& point : points) {
    if (base_line.is_null() && point.contains("efficiency")) base_line = point["point"];
  }
  for (const auto& [label, reason] : plan.invalid) {
    invalid.push_back({{"point", label}, {"reason", reason}});
  }
  for (const auto& [label, other] : plan.same) same.push_back({{"point", label}, {"as", other}});
  const Config& c = request.base.config;
  Json sweep{{"scaling", request.weak ? "weak" : "strong"},
             {"complete", runs.whole},
             {"base_line", base_line},
             {"model",
              {{"architecture", c.model.architecture},
               {"num_layers", c.model.num_layers},
               {"hidden_size", c.model.hidden_size},
               {"sequence_length", c.data.sequence_length},
               {"dtype", c.precision.dtype}}},
             {"iterations", request.iterations},
             {"warm_up", request.warm_up},
             {"repeats", request.repeats},
             {"machine", machine},
             {"predicted_for", request.machine ? Json(request.machine->name) : Json(nullptr)},
             {"points", points},
             {"invalid", invalid},
             {"same", same},
             {"timelines", timelines_of(points, request, plan, runs)}};
  add_agreement(sweep);
  return sweep;
}

}  // namespace trident
