// What a traced step costs on a machine: seconds of each action of the schedule, by what takes
// them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "parallel/mesh.h"
#include "planner/machine/machine.h"
#include "planner/machine/operation_times.h"
#include "planner/plan/planned_rank.h"
#include "planner/simulation/like_actions.h"
#include "scheduler/action.h"
#include "settings/config.h"

namespace trident {

// What a program does in its own way. By default it is this one, with the config's overlaps.
struct Habits {
  // Gradients are summed beside backward, or after it.
  bool gradients_overlap_backward = true;
  // Sums over the tensor group run beside products, where the trace has them so, or never.
  bool tensor_sums_overlap_products = true;
  // Those of input gradients run beside the products of weight gradients, of the same action.
  bool tensor_sums_overlap_weight_gradients = false;
  // Transfers between stages run beside compute, or both ranks wait for them.
  bool transfers_overlap_compute = true;
  // Ranks that hold the same rows (tensor parallelism without sequence parallelism) send a part of
  // them each to the next stage, which gathers them (Narayanan 2021, section 4.1), or each sends
  // all.
  bool transfers_cut = false;
  // Collectives of copies of the model leave and enter a node by one device's part of its link, as
  // a ring does whose library knows of no other adapter.
  bool one_adapter = false;
  // Weights that are gathered for a layer's recomputed forward are given back after it and gathered
  // again for its backward, beside compute (DeepSpeed, where a layer has more parameters than
  // stage3_max_reuse_distance).
  bool gathers_again = false;
  // Attention keeps its scores on the chip, or writes and reads them.
  bool fused_attention = true;
  // GELU, bias and residual gradients and the loss go with their products and norms in one pass, or
  // have kernels of their own.
  bool fused_kernels = true;
  // Products of weight gradients add to the sum, or a kernel does after them.
  bool fused_accumulation = true;

  static Habits of(const Config&);
  // Changes what `text` names, as "gradients=after,transfers=apart", or the habits of a known
  // program: megatron_2021 (Narayanan 2021), megatron_2022 (Korthikanti 2022), deepspeed_2021 (the
  // ZeRO-3 of Narayanan 2021). RequestError, with
  // all choices, on anything else.
  void assume(const std::string& text);
};

// Seconds of one device.
struct Seconds {
  double products = 0, kernels = 0;           // kernels: all but products
  std::map<std::string, double> groups = {};  // that the device waits for
  double compute() const { return products + kernels; }
  double total() const;
  void add(const Seconds& other, double times = 1);
};

// A collective that runs beside compute: when it may begin, counted from its action's. One that is
// waited for is among them where others of its group have to wait for it, too; its time is the
// action's.
struct Beside {
  std::string group;
  Operation operation = Operation::all_reduce;
  double offset = 0, seconds = 0;
  bool waited = false;
};

struct ActionCost {
  Seconds seconds;
  std::vector<Beside> beside;
  double sent_on = 0;  // bytes of its message to the next rank
};

// Of the ranks at one place of the pipeline, and others with the same layers.
class RankCosts {
 public:
  // `held`: the stages of the traced rank. RequestError where the machine has no rate for what is
  // computed.
  RankCosts(const Config&, const Machine&, const Mesh&, StageEnds, const Habits&, const TracedStep&,
            const std::vector<int>& held, int rank);

  // Of each action of a list of a rank that holds these stages.
  std::vector<const ActionCost*> of(const std::vector<Action>& list,
                                    const std::vector<int>& held) const;
  // Before the first action and after the last: weights, the check, the update.
  const ActionCost& around() const { return around_; }

 private:
  std::map<LikeAction, ActionCost> costs_;
  ActionCost around_;
};

// Where the members of a rank's group with this traffic are.
GroupShape group_shape(const Mesh&, StageEnds, std::string_view traffic, int rank,
                       std::int64_t devices_per_node);

}  // namespace trident
