// Decides which points of a grid a sweep can run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/units.h"
#include "datasets/source_files.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "planner/plan/fit.h"
#include "planner/plan/plan.h"
#include "planner/simulation/step_simulation.h"
#include "planner/sweep/machine_fit.h"
#include "planner/sweep/sweep.h"
#include "settings/ineffective_keys.h"

namespace trident {
namespace {

// Returns all settings that change the loss. The layout is among them for asynchronous schedules
// alone, since their updates are delayed.
std::string same_loss_of(const Config& config) {
  nlohmann::json json = nlohmann::json::parse(config_to_json(config));
  for (const char* section :
       {"zero_optimization", "activation_checkpointing", "runtime", "logging", "checkpoint"}) {
    json.erase(section);
  }
  json["batch"].erase("micro_batch_size");
  json["batch"].erase("gradient_accumulation_steps");
  if (!schedule_of(config).asynchronous()) {
    json.erase("parallel");
    json.erase("pipeline");
  }
  return json.dump();
}

class SweepPlanner {
 public:
  explicit SweepPlanner(const SweepRequest& request)
      : request_(request), base_(sweep_base(request).dump()) {}

  SweepPlan run() {
    if (request_.weak) refuse_batches();
    if (request_.base.micro_batch_is_auto) refuse_auto();
    refuse_schedules();
    need_data();
    add("one rank", single_rank());
    alone_ = !plan_.points.empty();
    const std::size_t base_lines = plan_.points.size();
    for (const GridPoint& point : grid_points(request_.grid)) {
      ++number_;
      add(point.label, point.set);
    }
    refuse_unknown_values();
    if (plan_.points.size() == base_lines && (alone_ || base_lines == 0)) {
      std::vector<std::string> problems{"--grid: no combination of these values is valid"};
      for (const auto& [label, reason] : plan_.invalid) problems.push_back(label + ": " + reason);
      throw RequestError(problems);
    }
    return std::move(plan_);
  }

 private:
  // Weak scaling sets the batch itself.
  void refuse_batches() const {
    for (const GridKey& key : request_.grid) {
      const bool size =
          key.path == "batch.global_batch_size" || key.path == "batch.gradient_accumulation_steps";
      const bool any = key.path == "batch.micro_batch_size" &&
                       std::find(key.values.begin(), key.values.end(), "auto") != key.values.end();
      if (!size && !any) continue;
      throw RequestError(fmt::format("--grid: {}: weak scaling sets the batch itself{}", key.name,
                                     any ? "; give numbers here" : ""));
    }
  }

  // "auto" derives the size from a fixed global batch.
  void refuse_auto() const {
    bool given = false, accumulates = false;
    for (const GridKey& key : request_.grid) {
      given = given || key.path == "batch.micro_batch_size";
      accumulates = accumulates || key.path == "batch.gradient_accumulation_steps";
    }
    if (given || !(request_.weak || accumulates || request_.measure)) return;
    throw RequestError(
        "config: /batch/micro_batch_size: \"auto\" needs a fixed global batch, and it doesn't go "
        "with --measure, which needs the size first: give a number, in the config or the grid");
  }

  // A schedule file replaces the schedule's name.
  void refuse_schedules() const {
    if (request_.base.config.pipeline.schedule_file.empty()) return;
    for (const GridKey& key : request_.grid) {
      if (key.path != "pipeline.schedule") continue;
      throw RequestError(fmt::format(
          "--grid: {}: the config's pipeline.schedule_file replaces it; remove schedule_file",
          key.name));
    }
  }

  // Every run would fail without its data.
  void need_data() const {
    std::vector<std::string> problems;
    const DataConfig& data = request_.base.config.data;
    for (std::size_t i = 0; i < data.train.size(); ++i) {
      try {
        find_source_files(data.train[i].path);
      } catch (const RequestError& error) {
        problems.push_back(
            fmt::format("config: /data/train/{}/path: {}", i, printable(error.what())));
      }
    }
    const bool swept = std::any_of(request_.grid.begin(), request_.grid.end(),
                                   [](const auto& key) { return key.path.starts_with("data."); });
    if (!problems.empty() && !swept) throw RequestError(problems);
  }

  std::vector<std::string> single_rank() const {
    std::vector<std::string> set{"parallel.virtual_pipeline_model_parallel_size=1",
                                 "pipeline.schedule=1f1b",
                                 "pipeline.schedule_file=null",
                                 "pipeline.layer_split=null",
                                 "parallel.sequence_parallel=false",
                                 "parallel.tp_comm_overlap=false",
                                 "zero_optimization.stage=0"};
    for (const MeshAxis& axis : request_.base.config.parallel.axes()) {
      if (!axis.key.empty()) set.push_back("parallel." + axis.key + "=1");
    }
    return set;
  }

  LoadedConfig parsed(const std::vector<std::string>& set) const {
    return parse_config(base_, set, request_.load);
  }

  void add(const std::string& label, std::vector<std::string> set) {
    try {
      if (request_.base.micro_batch_is_auto) choose_micro_batch(set);
      if (request_.weak) grow_batch(set);
      add(label, set, parsed(set));
    } catch (const RequestError& error) {
      std::string reason;
      for (const std::string& problem : error.problems()) {
        reason += (reason.empty() ? "" : "; ") + problem;
      }
      plan_.invalid.emplace_back(label, reason);
      problems_.emplace_back(set, error.problems());
    }
  }

  // Replaces "auto" by the largest size that fits this layout.
  void choose_micro_batch(std::vector<std::string>& set) const {
    const std::string key = "batch.micro_batch_size=";
    for (const std::string& one : set) {
      if (one.starts_with(key)) return;
    }
    set.push_back(key + "1");
    const Config smallest = parsed(set).config;
    const auto size =
        largest_micro_batch(smallest, *architecture_of(smallest), request_.rank_memory(smallest));
    if (size) set.back() = key + std::to_string(*size);
  }

  // Gives each copy of the model as many sequences as one copy has in the config.
  void grow_batch(std::vector<std::string>& set) const {
    const BatchConfig& batch = request_.base.config.batch;
    const std::int64_t part = batch.micro_batch_size * request_.base.config.num_microbatches();
    std::int64_t size = batch.micro_batch_size;
    const std::string key = "batch.micro_batch_size=";
    for (const std::string& one : set) {
      if (!one.starts_with(key)) continue;
      const char* const end = one.data() + one.size();
      if (std::from_chars(one.data() + key.size(), end, size).ptr != end || size < 1) return;
    }
    if (part % size != 0) {
      throw RequestError(
          fmt::format("batch: {} sequences of a copy of the model aren't a multiple "
                      "of micro_batch_size {}",
                      part, size));
    }
    set.emplace_back("batch.global_batch_size=null");
    set.push_back(fmt::format("batch.gradient_accumulation_steps={}", part / size));
  }

  void add(const std::string& label, const std::vector<std::string>& set, LoadedConfig loaded) {
    SweepPoint point{
        .label = label, .set = set, .number = number_, .config = std::move(loaded.config)};
    point.notes = ineffective_key_notes(point.config, loaded.written);
    const Config& c = point.config;
    const std::string text = config_to_json(c);
    // If a point of the grid equals the base line, it replaces the base line.
    const auto like = labels_.find(text);
    if (like != labels_.end() && !(alone_ && like->second == plan_.points.front().label)) {
      plan_.same.emplace_back(label, like->second);
      return;
    }
    const Architecture& architecture = *architecture_of(c);
    point.planned_peak = largest_rank(make_plan(c, architecture)).at("total");
    const std::int64_t whole = (point.planned_peak + library_bytes(c)) * c.world_size();
    if (c.runtime.device == "cpu" && whole > request_.memory) {
      throw RequestError(fmt::format("takes up to {} in all; {} are free", bytes_text(whole),
                                     bytes_text(request_.memory)));
    }
    point.processors = c.world_size();
    if (c.runtime.device == "cpu") {
      point.processors = std::min(request_.load.cores, c.world_size() * c.runtime.threads_per_rank);
    } else if (transport_constraints(c).threads && request_.load.gpus > 0) {  // in one process
      point.processors = std::min(request_.load.gpus, c.world_size());
    }
    if (request_.machine) {
      try {
        point.replayed = is_crowded(c.world_size(), *request_.machine);
        point.simulated_seconds = predicted_seconds(c, *request_.machine, point.replayed);
      } catch (const RequestError& error) {  // that machine can't run it; this one may
        plan_.not_predicted.emplace_back(label, error.problems().front());
      }
    }
    point.same_loss = same_loss_of(c);
    const nlohmann::json whole_config = nlohmann::json::parse(text);
    point.same_work =
        nlohmann::json{whole_config["model"], c.precision.dtype, c.data.sequence_length}.dump();
    labels_[text] = label;
    if (like != labels_.end()) {
      plan_.points.front() = std::move(point);
      alone_ = false;
    } else {
      plan_.points.push_back(std::move(point));
    }
  }

  // A name that causes the same problem at its own key in all combinations is a mistake. A number
  // may belong to a layout that doesn't fit this model.
  void refuse_unknown_values() const {
    std::vector<std::string> mistakes;
    const std::size_t all = grid_points(request_.grid).size();
    for (const GridKey& key : request_.grid) {
      std::string pointer = "/" + key.path;
      std::replace(pointer.begin(), pointer.end(), '.', '/');
      for (const std::string& value : key.values) {
        const nlohmann::json json = nlohmann::json::parse(value, nullptr, false);
        if (!json.is_discarded() && !json.is_string()) continue;
        const std::string set = fmt::format("{}={}", key.path, value);
        std::map<std::string, std::size_t> counts;
        for (const auto& [sets, problems] : problems_) {
          if (std::find(sets.begin(), sets.end(), set) == sets.end()) continue;
          for (const std::string& problem : problems) {
            if (problem.find(pointer + ":") != std::string::npos) ++counts[problem];
          }
        }
        for (const auto& [problem, count] : counts) {
          if (count == all / key.values.size()) {
            mistakes.push_back(fmt::format("--grid: {}: {}", key.name, problem));
          }
        }
      }
    }
    if (!mistakes.empty()) throw RequestError(mistakes);
  }

  const SweepRequest& request_;
  const std::string base_;
  SweepPlan plan_;
  bool alone_ = false;                         // the base line is no point of the grid
  std::map<std::string, std::string> labels_;  // label by config
  std::size_t number_ = 0;
  std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> problems_;
};

}  // namespace

namespace {

// Leaves out the model keys that have the values that other keys give them, so that they follow
// these in the grid.
void leave_out_derived(nlohmann::json& model) {
  const auto whole = [&](const char* key) { return model.at(key).get<std::int64_t>(); };
  const bool latent = whole("kv_lora_rank") > 0;
  if (latent || whole("head_dim") == whole("hidden_size") / whole("num_attention_heads")) {
    model.erase("head_dim");
  }
  const auto& layers = model.at("window_layers");
  if (layers.empty() || std::ssize(layers) == whole("num_layers")) model.erase("window_layers");
  nlohmann::json& moe = model.at("moe");
  const auto& freq = moe.at("layer_freq");
  const bool all = std::count(freq.begin(), freq.end(), 1) == whole("num_layers");
  if (moe.at("num_experts").is_null()) {
    model.erase("moe");
  } else if (all) {
    moe.erase("layer_freq");
  }
}

}  // namespace

nlohmann::json sweep_base(const SweepRequest& request) {
  nlohmann::json base = parse_json(request.base.written, "config");
  // Runs don't load the weights, but the model's shape may come from them.
  const auto filled_in = parse_json(request.base.filled_in, "config");
  const bool has_weights = is_written(request.base.written, "/checkpoint/load");
  nlohmann::json& model = base["model"];
  if (!model.is_object()) model = nlohmann::json::object();
  for (const char* key : {"architecture",
                          "num_layers",
                          "hidden_size",
                          "num_attention_heads",
                          "num_query_groups",
                          "ffn_hidden_size",
                          "max_position_embeddings",
                          "vocab_size",
                          "tie_word_embeddings",
                          "norm_epsilon",
                          "rotary_base",
                          "pad_token_id",
                          "head_dim",
                          "attention_bias",
                          "mlp_bias",
                          "sliding_window",
                          "window_layers",
                          "rope_scaling",
                          "kv_lora_rank",
                          "q_lora_rank",
                          "qk_head_dim",
                          "qk_pos_emb_head_dim",
                          "v_head_dim",
                          "moe"}) {
    // The weights complete a section of experts that the config gives in part.
    const bool given =
        model.contains(key) && !model[key].is_null() && std::string_view(key) != "moe";
    if (!given && has_weights) model[key] = filled_in["model"][key];
  }
  if (has_weights) leave_out_derived(model);
  base.erase("checkpoint");
  base.erase("scheduler");
  base.erase("logging");
  nlohmann::json& training = base["training"];
  if (!training.is_object()) training = nlohmann::json::object();
  for (const char* key : {"train_iters", "train_epochs", "eval_interval", "eval_iters"}) {
    training.erase(key);
  }
  training["train_iters"] = request.warm_up + request.iterations;
  training["eval_interval"] = 0;
  training["eval_iters"] = 1;
  // The global batch stays the same, whichever batch keys the config gives.
  const auto in_grid = [&](const char* path) {
    return std::any_of(request.grid.begin(), request.grid.end(),
                       [&](const GridKey& key) { return key.path == path; });
  };
  nlohmann::json& batch = base["batch"];
  if (!batch.is_object()) batch = nlohmann::json::object();
  batch.erase("gradient_accumulation_steps");
  batch.erase("rampup_batch_size");  // runs measure the full batch
  if (in_grid("batch.gradient_accumulation_steps")) {
    batch.erase("global_batch_size");
  } else {
    batch["global_batch_size"] = request.base.config.batch.global_batch_size;
  }
  return base;
}

SweepPlan plan_sweep(const SweepRequest& request) {
  return SweepPlanner(request).run();
}

}  // namespace trident
