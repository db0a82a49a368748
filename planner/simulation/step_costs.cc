#include "planner/simulation/step_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "parallel/topology.h"

namespace trident {
namespace {

// Adds the operations of a trace to costs.
class Pricer {
 public:
  Pricer(const Config& config, const Machine& machine, const Mesh& mesh, StageEnds ends,
         const Assumptions& assumptions, const OperationTrace& trace, int rank)
      : config_(config),
        machine_(machine),
        assumptions_(assumptions),
        operations_(trace.operations()) {
    for (const OperationTrace::Group& group : trace.groups()) {
      const std::string traffic(traffic_of(group.name));
      groups_.push_back(
          {traffic, group_shape(mesh, ends, traffic, rank, machine.devices_per_node)});
    }
  }

  // Whether ranks exchange tokens concurrently with compute. Then all actions have to be added, in
  // the order of the trace, since fused ones hide each other's exchanges.
  bool exchanges_concurrently() const {
    return std::ranges::any_of(
        operations_, [&](const TracedOperation& one) { return one.group >= 0 && exchanges(one); });
  }

  // Adds operation `at` of the trace. `cost` is the cost of its action, which may be a backward;
  // `after` is the cost of the work after the last action.
  void add(std::size_t at, ActionCost& cost, ActionCost& after, bool backward = false) {
    const double before = cost.seconds.total();
    price(at, cost, after, backward);
    clock_ += cost.seconds.total() - before;
  }

  // Adds a wait of the trace to the cost of its action.
  void add(const TracedWait& wait, ActionCost& cost) {
    const auto found = exchanging_.find(wait.operation);
    if (found == exchanging_.end()) return;
    const auto [end, seconds] = found->second;
    exchanging_.erase(found);
    const std::string& traffic = traffic_of_operation(operations_[wait.operation]);
    const double exposed = std::max(0.0, end - clock_), hidden = std::max(0.0, seconds - exposed);
    const double waited = exposed + hidden * machine_.device.taken_by_collectives;
    cost.seconds.groups[traffic] += waited;
    cost.hidden[traffic] += hidden;
    clock_ += waited;
  }

 private:
  const std::string& traffic_of_operation(const TracedOperation& one) const {
    return groups_[static_cast<std::size_t>(one.group)].first;
  }
  // Whether this is an exchange of tokens, or a message of context parallelism, that runs
  // concurrently with compute.
  bool exchanges(const TracedOperation& one) const {
    const std::string& traffic = traffic_of_operation(one);
    return one.asynchronous && is_within_layers(traffic) && traffic != layer_traffic();
  }

  void price(std::size_t at, ActionCost& cost, ActionCost& after, bool backward) {
    const TracedOperation& one = operations_[at];
    if (one.action != action_) action_ = one.action, hidden_.clear();
    if (one.group < 0) return add_kernel(one, cost);
    const auto& [traffic, shape] = groups_[static_cast<std::size_t>(one.group)];
    const auto operation = static_cast<Operation>(one.operation);
    const auto bytes =
        static_cast<double>(one.shape.numel()) * static_cast<double>(size_of(one.dtype));
    if (operation == Operation::message && !is_within_layers(traffic)) {
      cost.sent_on += bytes;
      return;
    }
    // The tensor of a gather is the member's own part.
    const bool part = operation == Operation::all_gather || operation == Operation::gather;
    const double whole = part ? bytes * static_cast<double>(shape.members) : bytes;
    const bool within = is_within_layers(traffic);
    const bool narrow = assumptions_.one_adapter && !within && shape.nodes() > 1;
    const double seconds =
        operation == Operation::message
            ? message_seconds(machine_, bytes, shape.nodes() == 1)
            : collective_seconds(narrow ? narrow_of(shape) : machine_, operation, whole, shape);
    if (assumptions_.gathers_again && recomputes() && part && !within && backward) {
      cost.overlapped.push_back({traffic, operation, cost.seconds.total(), seconds});
    }
    if (exchanges(one)) {
      exchanged_ = std::max(exchanged_, clock_) + seconds + wait_for_the_last();
      exchanging_[at] = {exchanged_, seconds};
      return;
    }
    if (!one.asynchronous || (within && !assumptions_.tensor_sums_overlap_products)) {
      if (!within)
        cost.overlapped.push_back({traffic, operation, cost.seconds.total(), seconds, true});
      cost.seconds.groups[traffic] += seconds + (within ? wait_for_the_last() : 0);
      if (assumptions_.tensor_sums_overlap_weight_gradients && within && hides(at)) {
        hidden_.emplace_back(traffic, seconds);
      }
    } else if (!within && !assumptions_.gradients_overlap_backward) {
      after.seconds.groups[traffic] += seconds;
    } else {
      cost.overlapped.push_back({traffic, operation, cost.seconds.total(), seconds});
      cost.seconds.groups[traffic] += seconds * machine_.device.taken_by_collectives;
    }
  }

  // Returns how long the members of a group wait for the slowest one at a collective within layers.
  double wait_for_the_last() { return machine_.device.skew * std::exchange(since_met_, 0.0); }

  bool recomputes() const { return config_.activation_checkpointing.granularity == "full"; }

  // Returns the machine with a node's link reduced to one device's share of it.
  Machine narrow_of(const GroupShape& shape) const {
    Machine machine = machine_;
    machine.across.bandwidth /=
        static_cast<double>(std::min(shape.members, shape.members_per_node));
    return machine;
  }

  // Whether the collective can run concurrently with products of weight gradients: the sum of an
  // input gradient, which follows its product, or the gather of an input for a product of weight
  // gradients.
  bool hides(std::size_t at) const {
    const auto in_action = [&](std::size_t other) {
      return other < operations_.size() && operations_[other].action == action_ &&
             operations_[other].name == "gemm";
    };
    if (at > 0 && in_action(at - 1)) {
      const TracedOperation& before = operations_[at - 1];
      if (!before.transpose_a && !before.transpose_b) return true;
    }
    return in_action(at + 1) && operations_[at + 1].transpose_a;
  }

  void add_kernel(const TracedOperation& one, ActionCost& cost) {
    Seconds& seconds = cost.seconds;
    const bool attention = one.flops > 0 && one.name.starts_with("attention");
    if (attention && !assumptions_.fused_attention) return add_scores(one, seconds);
    TracedOperation alone = one;
    if (!assumptions_.fused_kernels) own_kernel(alone, alone.bytes_if_unfused, seconds);
    if (!assumptions_.fused_accumulation) own_kernel(alone, alone.bytes_to_add, seconds);
    const double taken = kernel_seconds(machine_, alone);
    since_met_ += taken;
    (one.flops > 0 ? seconds.products : seconds.kernels) += taken;
    if (one.transpose_a) hide(taken, seconds);
  }

  // Hides collectives that were waited for behind a product of weight gradients.
  void hide(double taken, Seconds& seconds) {
    while (taken > 0 && !hidden_.empty()) {
      auto& [traffic, left] = hidden_.back();
      const double hidden = std::min(taken, left);
      seconds.groups[traffic] -= hidden * (1 - machine_.device.taken_by_collectives);
      taken -= hidden, left -= hidden;
      if (left <= 0) hidden_.pop_back();
    }
  }

  // Moves `bytes` of the fused operation `one` to a kernel of their own.
  void own_kernel(TracedOperation& one, std::int64_t bytes, Seconds& seconds) const {
    if (bytes == 0) return;
    seconds.kernels += memory_seconds(machine_, static_cast<double>(bytes));
    // A product then moves only its operands and its result.
    if (one.flops > 0) one.bytes_read = one.bytes_written = 0;
  }

  // Prices attention with its scores in memory: products for each head, and the kernels between
  // them over all s × s scores (Megatron-LM before fused attention).
  void add_scores(const TracedOperation& one, Seconds& seconds) const {
    const ModelConfig& model = config_.model;
    const bool latent = model.kv_lora_rank > 0;
    const std::int64_t s = config_.data.sequence_length;
    const std::int64_t d = latent ? model.qk_head_dim + model.qk_pos_emb_head_dim : model.head_dim;
    const std::int64_t e = latent ? model.v_head_dim : d;  // of a value head
    const bool backward = one.name == "attention_backward";
    // The trace has the rows of this rank's heads, in a backward those of their queries, keys and
    // values.
    const std::int64_t a = model.num_attention_heads, g = model.num_query_groups;
    const std::int64_t batch = one.shape.dim(0) / s, written = one.shape.dim(1);
    const std::int64_t heads = backward ? written * a / (a * d + g * (d + e)) : written / e;
    const double scores = static_cast<double>(batch * heads) * static_cast<double>(s * s);
    const double width = static_cast<double>(size_of(one.dtype));
    const bool dropout = model.attention_dropout > 0;
    for (int pass = 0; pass < (backward ? 2 : 1); ++pass) {
      seconds.products += product_seconds(machine_, one.dtype, s, s, d, batch * heads) +
                          product_seconds(machine_, one.dtype, s, e, s, batch * heads);
    }
    // Softmax reads and writes the scores; its backward reads two tensors. Dropout does the same,
    // with a mask of one byte per score.
    seconds.kernels += memory_seconds(machine_, (backward ? 3 : 2) * width * scores);
    if (dropout) seconds.kernels += memory_seconds(machine_, (2 * width + 1) * scores);
    // Products by head need their results in another layout: that of the values and, in a backward,
    // the gradients of all three inputs.
    const double rows = static_cast<double>(batch * heads) * static_cast<double>(s * d) * width;
    seconds.kernels += (backward ? 2 : 1) * memory_seconds(machine_, 2 * rows);
    if (backward) {
      const double three = 1 + 2 * static_cast<double>(g) / static_cast<double>(a);
      seconds.kernels += memory_seconds(machine_, 2 * three * rows);
    }
  }

  const Config& config_;
  const Machine& machine_;
  const Assumptions& assumptions_;
  const std::vector<TracedOperation>& operations_;
  std::vector<std::pair<std::string, GroupShape>> groups_;
  int action_ = -1;
  double since_met_ = 0;  // seconds of kernels since the last collective within layers
  double clock_ = 0;      // seconds of all that has been added
  // The exchanges of tokens that nothing has waited for yet: their ends by clock_, and their
  // seconds. They run one after the other; the last ends at exchanged_.
  std::map<std::size_t, std::pair<double, double>> exchanging_;
  double exchanged_ = 0;
  // The collectives of this action that were waited for and that a later product can hide.
  std::vector<std::pair<std::string, double>> hidden_;
};

}  // namespace

Assumptions Assumptions::of(const ZeroConfig& zero, const ParallelConfig& parallel) {
  return {.gradients_overlap_backward = zero.overlap_comm,
          .tensor_sums_overlap_products = parallel.tp_comm_overlap};
}

void Assumptions::assume(const std::string& text) {
  struct Choice {
    const char* text;
    bool Assumptions::*value;
    bool on;
  };
  static constexpr Choice choices[] = {
      {"gradients=beside", &Assumptions::gradients_overlap_backward, true},
      {"gradients=after", &Assumptions::gradients_overlap_backward, false},
      {"tensor_sums=beside", &Assumptions::tensor_sums_overlap_products, true},
      {"tensor_sums=apart", &Assumptions::tensor_sums_overlap_products, false},
      {"tensor_sums=beside_weight_gradients", &Assumptions::tensor_sums_overlap_weight_gradients,
       true},
      {"transfers=beside", &Assumptions::transfers_overlap_compute, true},
      {"transfers=apart", &Assumptions::transfers_overlap_compute, false},
      {"messages=whole", &Assumptions::transfers_cut, false},
      {"messages=cut", &Assumptions::transfers_cut, true},
      {"rings=all_adapters", &Assumptions::one_adapter, false},
      {"rings=one_adapter", &Assumptions::one_adapter, true},
      {"gathers=once", &Assumptions::gathers_again, false},
      {"gathers=again", &Assumptions::gathers_again, true},
      {"attention=fused", &Assumptions::fused_attention, true},
      {"attention=in_memory", &Assumptions::fused_attention, false},
      {"kernels=fused", &Assumptions::fused_kernels, true},
      {"kernels=apart", &Assumptions::fused_kernels, false},
      {"accumulation=fused", &Assumptions::fused_accumulation, true},
      {"accumulation=apart", &Assumptions::fused_accumulation, false}};
  // Both Megatron programs write scores to memory and wait for messages, of which each rank sends a
  // part. GELU, bias gradients, residuals and the loss are separate kernels. The later program
  // accumulates weight gradients in the product and runs sums of input gradients concurrently with
  // it.
  static const std::map<std::string, std::string> programs{
      {"megatron_2021",
       "gradients=after,tensor_sums=apart,transfers=apart,messages=cut,attention=in_memory,"
       "kernels=apart,accumulation=apart"},
      {"megatron_2022",
       "gradients=after,tensor_sums=beside_weight_gradients,transfers=apart,messages=cut,"
       "attention=in_memory,kernels=apart"},
      {"deepspeed_2021",
       "rings=one_adapter,gathers=again,attention=in_memory,kernels=apart,accumulation=apart"}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (const auto program = programs.find(part); program != programs.end()) {
      assume(program->second);
      continue;
    }
    const auto* const found = std::find_if(std::begin(choices), std::end(choices),
                                           [&](const Choice& one) { return part == one.text; });
    if (found != std::end(choices)) {
      this->*found->value = found->on;
      continue;
    }
    std::string known = "deepspeed_2021, megatron_2021, megatron_2022";
    for (const Choice& one : choices) known += fmt::format(", {}", one.text);
    throw RequestError(fmt::format("--assume: \"{}\": needs one of {}", part, known));
  }
}

double Seconds::total() const {
  double sum = compute();
  for (const auto& [group, seconds] : groups) sum += seconds;
  return sum;
}

void Seconds::add(const Seconds& other, double times) {
  products += times * other.products;
  kernels += times * other.kernels;
  for (const auto& [group, seconds] : other.groups) groups[group] += times * seconds;
}

namespace {

std::int64_t most_on_a_node(const std::vector<int>& members, std::int64_t devices_per_node) {
  std::map<std::int64_t, std::int64_t> on_node;
  std::int64_t most = 1;
  for (const int member : members) most = std::max(most, ++on_node[member / devices_per_node]);
  return most;
}

}  // namespace

GroupShape group_shape(const Mesh& mesh, StageEnds ends, std::string_view traffic, int rank,
                       std::int64_t devices_per_node) {
  std::vector<int> members;
  if (const auto group = group_of_traffic(traffic)) {
    members = mesh.group(rank, *group);
  } else if (traffic == "embedding") {
    members = mesh.embedding_group(rank, ends);
  } else {
    const std::int64_t all = mesh.world_size();
    return {all, std::min(all, devices_per_node)};
  }
  const auto size = std::ssize(members);
  std::int64_t most = most_on_a_node(members, devices_per_node);
  const auto group = group_of_traffic(traffic);
  // If a group's ranks don't divide a node evenly, some groups lie on two nodes, and all others
  // wait for these. The pattern repeats after `period` ranks.
  const std::int64_t span = size > 1 ? size * (members[1] - members[0]) : 1;
  if (group && most > 1 && devices_per_node % span != 0 && span % devices_per_node != 0) {
    const std::int64_t period = std::min<std::int64_t>(span * devices_per_node, mesh.world_size());
    for (int other = 0; other < period; ++other) {
      most = std::min(most, most_on_a_node(mesh.group(other, *group), devices_per_node));
    }
  }
  return {size, most};
}

RankCosts::RankCosts(const Config& config, const Machine& machine, const Mesh& mesh, StageEnds ends,
                     const Assumptions& assumptions, const TracedStep& step,
                     const std::vector<int>& held, int rank) {
  Pricer pricer(config, machine, mesh, ends, assumptions, step.trace, rank);
  const std::vector<LikeAction> which = like_actions(step.actions, held);
  // Of matching actions, the first traced one stands for all.
  std::vector<ActionCost*> of_action;
  for (const LikeAction& one : which) {
    const auto [at, added] = costs_.try_emplace(one);
    of_action.push_back(added ? &at->second : nullptr);
  }
  // The cost of work in an action that another stands for.
  ActionCost other;
  const bool adds_all = pricer.exchanges_concurrently();
  const auto cost_of = [&](int action) {
    if (action < 0) return &around_;
    ActionCost* const cost = of_action.at(static_cast<std::size_t>(action));
    return cost == nullptr && adds_all ? &other : cost;
  };
  const auto& operations = step.trace.operations();
  auto wait = step.trace.waits().begin();
  for (std::size_t i = 0; i <= operations.size(); ++i) {
    for (; wait != step.trace.waits().end() && wait->before == i; ++wait) {
      if (ActionCost* const cost = cost_of(wait->action)) pricer.add(*wait, *cost);
    }
    if (i == operations.size()) break;
    const int action = operations[i].action;
    ActionCost* const cost = cost_of(action);
    if (cost == nullptr) continue;
    const Kind kind = action < 0 ? Kind::forward : which[static_cast<std::size_t>(action)].kind;
    pricer.add(i, *cost, around_, kind == Kind::backward || kind == Kind::backward_input);
  }
}

std::vector<const ActionCost*> RankCosts::of(const std::vector<Action>& list,
                                             const std::vector<int>& held) const {
  std::vector<const ActionCost*> result;
  for (const LikeAction& one : like_actions(list, held)) {
    result.push_back(find_like(costs_, one));
    if (result.back() == nullptr) {
      throw Error(fmt::format("simulate: chunk {} has no traced {}", one.chunk, letter(one.kind)));
    }
  }
  return result;
}

}  // namespace trident
