#include "planner/search/layout_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "base/error.h"
#include "scheduler/interleaved.h"
#include "settings/constraints.h"

namespace trident {
namespace {

using namespace nlohmann::literals;

constexpr std::array<std::int64_t, 5> several_chunks{2, 3, 4, 6, 8};

constexpr auto schedule_key = "pipeline.schedule", split_key = "pipeline.layer_split",
               group_key = "pipeline.microbatch_group_size_per_vp_stage",
               micro_key = "batch.micro_batch_size",
               accumulation_key = "batch.gradient_accumulation_steps",
               zero_key = "zero_optimization.stage",
               reduction_key = "zero_optimization.reduce_each_micro_batch",
               recompute_key = "activation_checkpointing.granularity";

nlohmann::json::json_pointer pointer_of(std::string key) {
  std::replace(key.begin(), key.end(), '.', '/');
  return nlohmann::json::json_pointer("/" + key);
}

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) list.push_back(d);
  }
  return list;
}

}  // namespace

std::vector<std::string> given_keys(const LoadedConfig& config) {
  std::vector<std::string> given;
  for (const std::string& key : layout_keys()) {
    const bool word = key == micro_key && config.micro_batch_is_auto;
    if (!word && is_written(config.written, pointer_of(key).to_string())) given.push_back(key);
  }
  return given;
}

void need_batch(const LoadedConfig& config) {
  std::vector<std::string> problems;
  if (!is_written(config.written, "/batch/global_batch_size")) {
    problems.emplace_back(
        "config: /batch/global_batch_size: has to be given where parallel is \"auto\", for all "
        "layouts train on the same batches");
  }
  if (is_written(config.written, "/pipeline/schedule_file")) {
    problems.emplace_back(
        "config: /pipeline/schedule_file: is for one layout; give /parallel, or take it out");
  }
  if (!problems.empty()) throw RequestError(problems);
}

LayoutChoices::LayoutChoices(const LayoutRequest& request) : request_(request) {
  for (const MeshAxis& axis : ParallelConfig{}.axes()) keys_[axis.name] = "parallel." + axis.key;
  const auto given = nlohmann::json::parse(request.written);
  overlaps_ = given.value("/parallel/tp_comm_overlap"_json_pointer, false);
  for (const std::string& key : request.held) hold(key, given);
  base_ = parse(set_of_all({}));
  common_batch_ = base_.batch.global_batch_size;
  if (const auto& ramp = base_.batch.rampup_batch_size; ramp.size() == 3) {
    common_batch_ = std::gcd(common_batch_, std::gcd(ramp[0], ramp[1]));
  }
  if (is_written(request.written, "/parallel/rank_order")) {
    ParallelConfig all = base_.parallel;
    all.context_parallel_size = 2;
    rank_order_ =
        completed_order(all.axes(), base_.parallel.rank_order, ParallelConfig{}.rank_order);
  }
}

Config LayoutChoices::parse(const std::vector<std::string>& set) const {
  return parse_config(request_.written, set, request_.load).config;
}

std::vector<std::int64_t> LayoutChoices::held_split() const {
  const auto found = held_.find(split_key);
  if (found == held_.end() || !found->second.is_array()) return {};
  return found->second.get<std::vector<std::int64_t>>();
}

std::vector<std::string> LayoutChoices::set_of_held(const std::vector<std::string>& keys) const {
  std::vector<std::string> set;
  for (const std::string& key : keys) {
    if (const auto found = held_.find(key); found != held_.end()) {
      set.push_back(fmt::format("{}={}", key, found->second.dump()));
    }
  }
  return set;
}

void LayoutChoices::hold(const std::string& key, const nlohmann::json& given) {
  const auto at = pointer_of(key);
  if (given.contains(at)) held_[key] = given[at];
}

std::vector<std::string> LayoutChoices::set_of(const Layout& l) const {
  std::vector<std::string> set = set_of_all(l);
  std::erase_if(
      set, [&](const std::string& one) { return held_.contains(one.substr(0, one.find('='))); });
  return set;
}

std::vector<std::string> LayoutChoices::set_of_all(const Layout& l) const {
  const auto yes = [](bool value) { return value ? "true" : "false"; };
  const std::string etp = l.etp > 0 ? std::to_string(l.etp) : "null";
  std::vector<std::string> set{
      fmt::format("parallel.context_parallel_size={}", l.cp),
      "parallel.cp_comm_type=null",
      "parallel.hierarchical_context_parallel_sizes=null",
      fmt::format("parallel.expert_model_parallel_size={}", l.ep),
      fmt::format("parallel.expert_tensor_parallel_size={}", etp),
      fmt::format("{}={}", keys_.at("dp"), l.dp),
      fmt::format("{}={}", keys_.at("tp"), l.tp),
      fmt::format("{}={}", keys_.at("pp"), l.pp),
      fmt::format("parallel.virtual_pipeline_model_parallel_size={}", l.chunks),
      fmt::format("parallel.sequence_parallel={}", yes(l.sequence_parallel)),
      fmt::format("parallel.tp_comm_overlap={}", yes(l.sequence_parallel && overlaps_)),
      fmt::format("{}={}", schedule_key, l.schedule),
      "pipeline.schedule_file=null",
      fmt::format("{}={}", split_key, l.even ? "null" : "auto"),
      fmt::format("{}=null", group_key),
      fmt::format("{}={}", micro_key, l.micro),
      fmt::format("{}=null", accumulation_key),
      fmt::format("batch.global_batch_size={}", request_.global_batch_size),
      fmt::format("{}={}", zero_key, l.zero),
      fmt::format("{}=null", reduction_key),
      fmt::format("{}={}", recompute_key, l.recompute),
      "runtime.ranks_per_node=null"};
  // An order that omits an axis fits layouts where its size is 1.
  if (!rank_order_.empty()) set.push_back("parallel.rank_order=" + rank_order_);
  return set;
}

// Many experts lie on as many ranks of a node as possible, or on as many ranks at all; few of them
// on one rank or on many, and each may be shared as layers are. Other numbers lie between these in
// time and memory.
void LayoutChoices::with_experts(Layout l, const Consider& consider, const Prune& prune) const {
  const MoeConfig& moe = base_.model.moe;
  if (!moe.has_experts()) return with_schedules(l, consider, prune);
  const std::int64_t node = request_.machine.devices_per_node;
  const bool many = moe.num_experts > node;
  for (const std::int64_t etp : std::set<std::int64_t>{1, many ? 1 : l.tp}) {
    if (moe.ffn_hidden_size % etp != 0) {
      prune("the experts' width doesn't divide by the ranks that share each");
      continue;
    }
    const std::int64_t most = std::gcd(moe.num_experts, l.sharers() * l.tp / etp);
    l.etp = etp;
    for (const std::int64_t ep : std::set<std::int64_t>{many ? std::gcd(most, node) : 1, most}) {
      l.ep = ep;
      with_schedules(l, consider, prune);
    }
  }
}

void LayoutChoices::with_schedules(Layout l, const Consider& consider, const Prune& prune) const {
  const auto m = l.microbatches;
  const std::int64_t layers = base_.model.num_layers;
  if (const auto schedule = held<std::string>(schedule_key))
    return with_schedule(l, *schedule, consider, prune);
  if (l.pp == 1) return with_splits(l, consider);
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    l.schedule = schedule;
    with_splits(l, consider);
  }
  for (const std::int64_t chunks : several_chunks) {
    l.chunks = chunks;
    if (l.pp * chunks > layers) continue;
    if (chunks == 2) {
      l.schedule = "zbv";
      with_splits(l, consider);
    }
    try {
      interleaved_group_size("interleaved_1f1b", static_cast<int>(l.pp), static_cast<int>(m), 0);
    } catch (const RequestError&) {
      prune("these micro-batches can't be divided into groups for interleaving");
      continue;
    }
    l.schedule = "interleaved_1f1b";
    with_splits(l, consider);
  }
}

// Considers the schedule that the config gives.
void LayoutChoices::with_schedule(Layout l, const std::string& schedule, const Consider& consider,
                                  const Prune& prune) const {
  l.schedule = schedule;
  const auto& constraints = base_.constraints->schedules;
  const auto kind =
      std::find_if(constraints.begin(), constraints.end(),
                   [&](const ScheduleConstraints& one) { return one.name == schedule; });
  const ChunkRule chunks = kind == constraints.end() ? ChunkRule::one : kind->chunks;
  if (l.pp == 1 && kind != constraints.end() && kind->grouped) {
    return prune("the given schedule needs a pipeline");
  }
  if (chunks == ChunkRule::one || chunks == ChunkRule::any) with_splits(l, consider);
  l.chunks = 2;
  if (chunks == ChunkRule::two || chunks == ChunkRule::any) with_splits(l, consider);
  if (chunks != ChunkRule::several) return;
  for (const std::int64_t several : several_chunks) {
    l.chunks = several;
    if (l.pp * l.chunks <= base_.model.num_layers) with_splits(l, consider);
  }
}

void LayoutChoices::with_splits(Layout l, const Consider& consider) const {
  const auto split = held_.find(split_key);
  const bool given = split != held_.end();
  if (given && split->second.is_array() && std::ssize(split->second) != l.pp * l.chunks) return;
  for (const bool even : {true, false}) {
    if (!even && l.pp * l.chunks == 1) continue;
    if (given && even == (split->second == "auto")) continue;
    l.even = even;
    with_states(l, consider);
  }
}

void LayoutChoices::with_states(Layout l, const Consider& consider) const {
  for (const char* recompute : {"none", "selective", "full"}) {
    if (held<std::string>(recompute_key).value_or(recompute) != recompute) continue;
    l.recompute = recompute;
    const auto zero = held<std::int64_t>(zero_key);
    const std::int64_t least = zero.value_or(0),
                       most = zero.value_or(l.sharers() > 1 || l.holders() > 1 ? 3 : 0);
    for (l.zero = least; l.zero <= most; ++l.zero) {
      for (const bool sequence : {false, true}) {
        if (sequence && l.tp == 1) continue;
        l.sequence_parallel = sequence;
        consider(l);
      }
    }
  }
}

void LayoutChoices::with_batches(Layout l, const Consider& consider, const Prune& prune) const {
  const std::int64_t global = base_.batch.global_batch_size;
  if (common_batch_ % l.dp != 0) {
    return prune("the global batch doesn't divide by the copies of the model");
  }
  const auto held_micro = held<std::int64_t>(micro_key);
  for (l.micro = 1; l.micro <= held_micro.value_or(64); ++l.micro) {
    if (common_batch_ / l.dp % l.micro != 0 || held_micro.value_or(l.micro) != l.micro) continue;
    l.microbatches = global / l.dp / l.micro;
    if (held<std::int64_t>(accumulation_key).value_or(l.microbatches) != l.microbatches) continue;
    with_experts(l, consider, prune);
  }
}

// Of `ranks` ranks that share a stage and its layers with no other: 1, 2, 4, … share a sample.
void LayoutChoices::with_context(Layout l, std::int64_t ranks, const Consider& consider,
                                 const Prune& prune) const {
  for (l.cp = 1; ranks % l.cp == 0; l.cp *= 2) {
    if (l.cp > 1 && base_.data.sequence_length / l.cp < least_context_positions) return;
    l.dp = ranks / l.cp;
    with_batches(l, consider, prune);
  }
}

void LayoutChoices::each(std::int64_t ranks, const Consider& consider, const Prune& prune) const {
  for (const std::int64_t tp : divisors(ranks, ranks)) {
    const std::int64_t node = request_.machine.devices_per_node;
    if (tp > node || (ranks > node && node % tp != 0)) {
      prune("tensor parallelism across nodes");
      continue;
    }
    for (const std::int64_t pp : divisors(ranks / tp, ranks)) {
      if (pp > base_.model.num_layers) {
        prune("more stages than layers");
        continue;
      }
      with_context({.tp = tp, .pp = pp}, ranks / tp / pp, consider, prune);
    }
  }
}

}  // namespace trident
