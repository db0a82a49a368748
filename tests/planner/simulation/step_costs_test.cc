#include "planner/simulation/step_costs.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "engine/setup/from_config.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/topology.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

constexpr PublishedRun small{.layers = 2,
                             .hidden = 256,
                             .heads = 4,
                             .tensor = 1,
                             .pipeline = 1,
                             .chunks = 1,
                             .devices = 4,
                             .batch = 4,
                             .micro_batch = 1};

// A step written by hand: kernels, and exchanges of tokens among four ranks.
class HandMadeStep {
 public:
  HandMadeStep() { step_.microbatches = 1; }
  void begin(Kind kind, bool fused = false) {
    step_.actions.push_back({kind, 0, 0, fused});
    step_.trace.begin_action();
  }
  OperationTrace& trace() { return step_.trace; }
  void kernel(std::int64_t bytes) {
    step_.trace.add({.name = "copy", .shape = {bytes}, .bytes_read = bytes});
  }
  // Returns the index of the exchange.
  std::size_t exchange(std::int64_t elements) {
    step_.trace.add({.name = "all_to_all_v",
                     .shape = {elements},
                     .group = step_.trace.number_of(traffic_name(Group::exchange).value(), 4, 0),
                     .operation = static_cast<std::uint8_t>(Operation::all_to_all_v),
                     .asynchronous = true});
    return step_.trace.operations().size() - 1;
  }
  RankCosts costs() const {
    Config config = config_of(small);
    config.parallel.expert_model_parallel_size = 4;
    config.parallel.expert_tensor_parallel_size = 1;
    Machine machine = dgx_a100();
    machine.device.taken_by_collectives = 0;
    return RankCosts(config, machine, mesh_of(config.parallel), StageEnds{}, Assumptions{}, step_,
                     {0}, 0);
  }
  std::vector<double> seconds() const {
    const RankCosts costs = this->costs();
    std::vector<double> list;
    for (const ActionCost* one : costs.of(step_.actions, {0})) {
      list.push_back(one->seconds.total());
    }
    return list;
  }

 private:
  TracedStep step_;
};

double seconds_of_kernel(std::int64_t bytes) {
  HandMadeStep step;
  step.begin(Kind::forward);
  step.kernel(bytes);
  return step.seconds().front();
}

double seconds_of_exchange(std::int64_t elements) {
  HandMadeStep step;
  step.begin(Kind::forward);
  step.trace().add_wait(step.exchange(elements));
  return step.seconds().front();
}

constexpr std::int64_t few = std::int64_t{1} << 22, many = std::int64_t{1} << 31;

TEST(StepCosts, ARankWaitsForThePartOfAnExchangeThatComputeDoesNotCover) {
  const double exchange = seconds_of_exchange(few);
  ASSERT_GT(exchange, 0);
  for (const std::int64_t bytes : {few, many}) {
    HandMadeStep step;
    step.begin(Kind::forward);
    const std::size_t first = step.exchange(few);
    step.kernel(bytes);
    step.trace().add_wait(first);
    step.kernel(few);
    const double beside = std::max(exchange, seconds_of_kernel(bytes));
    EXPECT_NEAR(step.seconds().front(), beside + seconds_of_kernel(few), 1e-12);
    const RankCosts costs = step.costs();
    const double hidden = costs.of({{Kind::forward, 0, 0}}, {0})
                              .front()
                              ->hidden.at(traffic_name(Group::exchange).value());
    EXPECT_NEAR(hidden, std::min(exchange, seconds_of_kernel(bytes)), 1e-12);
  }
}

TEST(StepCosts, ExchangesRunOneAfterTheOther) {
  HandMadeStep step;
  step.begin(Kind::forward);
  const std::size_t first = step.exchange(few), second = step.exchange(few);
  step.trace().add_wait(second);
  step.trace().add_wait(first);
  EXPECT_NEAR(step.seconds().front(), 2 * seconds_of_exchange(few), 1e-12);
}

TEST(StepCosts, FusedActionsHideEachOthersExchanges) {
  HandMadeStep step;
  step.begin(Kind::forward, true);
  const OperationTrace::Place forward = step.trace().place();
  const std::size_t sent = step.exchange(few);
  step.begin(Kind::backward);
  step.kernel(many);  // longer than the exchange
  const OperationTrace::Place backward = step.trace().place();
  step.trace().resume(forward);
  step.trace().add_wait(sent);
  step.kernel(few);
  step.trace().resume(backward);
  step.kernel(few);
  const std::vector<double> seconds = step.seconds();
  EXPECT_NEAR(seconds[0], seconds_of_kernel(few), 1e-12);
  EXPECT_NEAR(seconds[1], seconds_of_kernel(many) + seconds_of_kernel(few), 1e-12);
}

}  // namespace
}  // namespace trident::testing
