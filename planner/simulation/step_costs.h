// Prices a traced step on a machine: the seconds of each action of the schedule, by category. The
// machine need not be available.
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

// How a program runs a step. The defaults are those of this program; of() takes the overlaps from
// the config.
struct Assumptions {
  // true: gradients are reduced concurrently with backward; false: after it.
  bool gradients_overlap_backward = true;
  // true: all-reduces of the tensor group run concurrently with products, where the trace has them
  // so; false: never.
  bool tensor_sums_overlap_products = true;
  // true: all-reduces of input gradients run concurrently with the products of weight gradients of
  // the same action.
  bool tensor_sums_overlap_weight_gradients = false;
  // true: transfers between stages run concurrently with compute; false: both ranks wait for them.
  bool transfers_overlap_compute = true;
  // true: ranks that hold the same rows (tensor parallelism without sequence parallelism) each send
  // a part of them to the next stage, which gathers them (Narayanan 2021, section 4.1); false: each
  // rank sends all rows.
  bool transfers_cut = false;
  // Collectives between copies of the model enter and leave a node through one device's share of
  // its link, like the ring of a library that knows no other adapter.
  bool one_adapter = false;
  // After a layer's recomputed forward, its gathered weights are freed; they are gathered again for
  // its backward, concurrently with compute (DeepSpeed, where a layer has more parameters than
  // stage3_max_reuse_distance).
  bool gathers_again = false;
  // true: attention keeps its scores on the chip; false: it writes them to memory and reads them.
  bool fused_attention = true;
  // true: GELU, bias and residual gradients and the loss share a pass with their products and
  // norms; false: they have their own kernels.
  bool fused_kernels = true;
  // true: products of weight gradients add to the gradient sum; false: a separate kernel adds them.
  bool fused_accumulation = true;

  static Assumptions of(const ZeroConfig&, const ParallelConfig&);
  // Changes the assumptions that `text` names, such as "gradients=after,transfers=apart", or takes
  // the assumptions of a known program: megatron_2021 (Narayanan 2021), megatron_2022 (Korthikanti
  // 2022), deepspeed_2021 (the ZeRO-3 of Narayanan 2021). Throws RequestError, with all choices, on
  // anything else.
  void assume(const std::string& text);
};

// Seconds of one device.
struct Seconds {
  double products = 0, kernels = 0;           // kernels: all kernels except products
  std::map<std::string, double> groups = {};  // communication that the device waits for
  double compute() const { return products + kernels; }
  double total() const;
  void add(const Seconds& other, double times = 1);
};

// A collective that runs concurrently with compute. `offset` is its earliest start, relative to its
// action's. A collective that the action waits for is listed, too, if it delays later ones; its
// time is then in the action's.
struct OverlappedCollective {
  std::string group;
  Operation operation = Operation::all_reduce;
  double offset = 0, seconds = 0;
  bool waited = false;
};

struct ActionCost {
  Seconds seconds;
  std::vector<OverlappedCollective> overlapped;
  // Seconds of exchanges of tokens that run concurrently with compute, by group.
  std::map<std::string, double> hidden = {};
  double sent_on = 0;  // bytes of its message to the next rank
};

// The costs of the ranks at one place of the pipeline, and of other ranks with the same layers.
class RankCosts {
 public:
  // `held` are the stages of the traced rank. Throws RequestError where the machine has no rate for
  // the step's type.
  RankCosts(const Config&, const Machine&, const Mesh&, StageEnds, const Assumptions&,
            const TracedStep&, const std::vector<int>& held, int rank);

  // Returns the cost of each action of a list, for a rank that holds these stages.
  std::vector<const ActionCost*> of(const std::vector<Action>& list,
                                    const std::vector<int>& held) const;
  // Returns the cost before the first action and after the last: weights, the check, the update.
  const ActionCost& around() const { return around_; }

 private:
  std::map<LikeAction, ActionCost> costs_;
  ActionCost around_;
};

// Returns how the members of a rank's group with this traffic are spread over nodes.
GroupShape group_shape(const Mesh&, StageEnds, std::string_view traffic, int rank,
                       std::int64_t devices_per_node);

}  // namespace trident
