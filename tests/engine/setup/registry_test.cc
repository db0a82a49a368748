// A program that links the library adds schedules, optimizers, models, transports and algorithms.
#include "engine/setup/registry.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "kernels/reduce.h"
#include "parallel/collectives/exchange.h"
#include "planner/plan/plan_check.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 1F1B with twice the warm-up.
Schedule eager(const ScheduleRequest& request) {
  const int p = request.stages, m = request.microbatches;
  Schedule schedule{"", p, m, 1, looped_placement(p, 1), {}};
  schedule.ranks.resize(static_cast<std::size_t>(p));
  for (int rank = 0; rank < p; ++rank) {
    auto& list = schedule.ranks[static_cast<std::size_t>(rank)];
    int forwards = 0;
    const auto forward = [&] { list.push_back({Kind::forward, rank, forwards++}); };
    while (forwards < std::min(2 * (p - 1 - rank), m)) forward();
    for (int backwards = 0; backwards < m; ++backwards) {
      if (forwards < m) forward();
      list.push_back({Kind::backward, rank, backwards});
    }
  }
  return schedule;
}

// signSGD (Bernstein et al. 2018): w -= lr · sign(g).
class SignSgd final : public UpdateRule {
 public:
  std::vector<StateSpec> states(const ParameterSpec&) const override { return {}; }
  void update(Context& context, const std::vector<UpdatePart>& parts,
              const UpdateStep& step) const override {
    for (const UpdatePart& part : parts) {
      if (part.range.count == 0) continue;
      context.stream().enqueue([=, rate = step.learning_rate](const Access& access) {
        float* const weight = data<float>(access, part.weight);
        const float* const gradient = data<float>(access, part.gradient);
        for (std::int64_t i = 0; i < part.range.count; ++i) {
          if (gradient[i] != 0) weight[i] -= std::copysign(rate, gradient[i]);
        }
      });
    }
  }
};

// Every rank sends its complete buffer to every rank, which adds in rank order.
constexpr Algorithm every_rank{200};
void all_reduce_every_rank(Exchange& exchange, const Buffers& buffers) {
  if (exchange.rendezvous() != nullptr) exchange.arrive_without_buffers();
  const Descriptor& d = exchange.descriptor();
  const auto bytes = static_cast<std::size_t>(buffers.n) * size_of(d.dtype);
  std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(exchange.size()),
                                            std::vector<std::byte>(bytes));
  std::vector<Exchange::Transfer> transfers;
  std::vector<const void*> sources;
  for (int peer = 0; peer < exchange.size(); ++peer) {
    std::byte* const part = parts[static_cast<std::size_t>(peer)].data();
    sources.push_back(peer == exchange.rank() ? buffers.output : part);
    if (peer == exchange.rank()) continue;
    transfers.push_back(exchange.receive(peer, part, bytes));
    transfers.push_back(exchange.send(peer, buffers.input, bytes));
  }
  exchange.wait(transfers);
  reduce(buffers.output, sources, buffers.n, d.dtype, d.reduce_op, exchange.size());
}
AlgorithmKind every_rank_kind() {
  return {{.name = "every_rank", .in_rank_order = true},
          every_rank,
          {{.operation = Operation::all_reduce,
            .algorithm = every_rank,
            .name = "every_rank",
            .serves = [](const CollectiveCase& c) { return c.algorithm == every_rank; },
            .run = all_reduce_every_rank,
            .sent = [](const CollectiveCase& c) { return c.n * (c.members - 1); }}}};
}

std::atomic<int> runs = 0;
void run_counted(int ranks, const TransportOptions& options, const TransportKind::Body& body) {
  ++runs;
  run_local(ranks, options, body);
}

std::shared_ptr<const ConfigConstraints> own_constraints() {
  Registry registry = built_in_registry();
  registry.schedules.push_back({{.name = "eager"}, eager});
  registry.optimizers.push_back({{.name = "SignSGD", .doc = "(signs alone)", .weight_decay = 0.5},
                                 [](const OptimizerParams&) -> std::unique_ptr<UpdateRule> {
                                   return std::make_unique<SignSgd>();
                                 }});
  registry.transports.push_back({{.name = "counted", .processes = false}, run_counted});
  registry.algorithms.push_back(every_rank_kind());
  return constraints_of(registry);
}

Config own_config(const TempDir& dir, const Overrides& overrides) {
  return seeded_config("gpt2", dir.path(), overrides, {}, own_constraints());
}

std::vector<std::string> problems_of(const Overrides& overrides) {
  const TempDir dir;
  try {
    own_config(dir, overrides);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

TEST(Registry, AScheduleFromOutsideTrainsBitwiseIdentically) {
  const TempDir dir;
  const Overrides two = overrides_of({2, 1, 2});
  const Config plain = own_config(dir, two);
  const Config own = own_config(dir, two + Overrides{"pipeline.schedule=eager"});
  EXPECT_EQ(schedule_of(own).kind, "eager");
  EXPECT_EQ(schedule_of(own).ranks[0][2].kind, Kind::forward) << "where 1F1B has a backward";
  EXPECT_EQ(losses_of(train(own)), losses_of(train(plain)));
}

TEST(Registry, AnOptimizerFromOutsideTrainsUnderZeroAsOnOneRank) {
  const TempDir dir;
  const Overrides own{"optimizer.type=SignSGD", "optimizer.params.betas=null",
                      "optimizer.params.eps=null", "optimizer.params.weight_decay=null",
                      "optimizer.params.lr=0.001"};
  const Config one = own_config(dir, own + overrides_of({2, 1, 1}));
  EXPECT_EQ(one.optimizer.params.weight_decay, 0.5) << "its own default";
  const Config sharded =
      own_config(dir, own + overrides_of({2, 1, 2}) +
                          Overrides{"zero_optimization.stage=2",
                                    "zero_optimization.reduce_each_micro_batch=false"});
  const auto losses = losses_of(train(one));
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(losses_of(train(sharded)), losses);
}

TEST(Registry, ATransportFromOutsideRunsTheRanks) {
  const TempDir dir;
  const Config config =
      own_config(dir, overrides_of({2, 1, 1}) + Overrides{"runtime.transport=counted"});
  const int before = runs;
  train_local(prepare_training(config), {});
  EXPECT_EQ(runs, before + 1);
}

TEST(Registry, AnAlgorithmFromOutsideIsPlannedAndRunByItsRow) {
  const TempDir dir;
  const Overrides stage0{"zero_optimization.stage=0"}, layout = overrides_of({3, 1, 1}) + stage0;
  const Config own = own_config(dir, layout + Overrides{"runtime.collective_algorithm=every_rank"});
  EXPECT_EQ(losses_of(train(own)), losses_of(train(own_config(dir, layout))));
  expect_planned({"gpt2", {3, 1, 1}, stage0 + Overrides{"runtime.collective_algorithm=every_rank"}},
                 0, own_constraints());
  try {
    on_ranks(own, transport_options(own), [&](Rank& rank) {
      Context& context = rank.model.context();
      const ProcessGroup& world = rank.model.topology().world;
      const Tensor x = context.empty({6}, DType::f32, Category::workspace);
      world.all_reduce(context, x, ReduceOp::sum, Async::no,
                       world.rank() == 1 ? Algorithm::direct : every_rank);
      context.synchronize();
    });
    FAIL() << "accepted";
  } catch (const CommunicationError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_reduce(fp32[6], sum, every_rank)"));
  }
}

TEST(Registry, ChecksSchemaAndReferenceListRowsFromOutside) {
  const auto constraints = own_constraints();
  const auto schema = nlohmann::json::parse(config_schema(*constraints))["properties"];
  EXPECT_THAT(schema["pipeline"]["properties"]["schedule"].dump(), HasSubstr("\"eager\""));
  EXPECT_THAT(schema["optimizer"]["properties"]["type"]["enum"], Contains("SignSGD"));
  EXPECT_THAT(config_reference_markdown(*constraints),
              HasSubstr("torch.optim.Adafactor), or SignSGD (signs alone)."));
  EXPECT_THAT(config_reference_markdown(*constraints),
              HasSubstr("0.01 for AdamW, 0.5 for SignSGD, else 0"));
  EXPECT_THAT(problems_of({"optimizer.type=SignSGD", "optimizer.params.betas=null",
                           "optimizer.params.eps=null", "optimizer.params.momentum=0.9"}),
              ElementsAre("config: /optimizer/params/momentum: does nothing for SignSGD; leave it "
                          "out, or use SGD"));
  EXPECT_THAT(problems_of({"pipeline.schedule=eagre"}),
              ElementsAre(HasSubstr("did you mean \"eager\"?")));
  EXPECT_THAT(problems_of({"pipeline.schedule=eager", "parallel.pipeline_model_parallel_size=2",
                           "parallel.virtual_pipeline_model_parallel_size=2"}),
              ElementsAre(HasSubstr("2 chunks don't fit schedule \"eager\"")));
  EXPECT_THAT(problems_of({"runtime.transport=counted", "runtime.device=cuda"}),
              ElementsAre(HasSubstr("\"counted\" carries no tensors of a GPU; use \"nccl\"")));
}

TEST(Registry, ADefaultThatIsInNoTableHasToBeGiven) {
  Registry registry = built_in_registry();
  std::erase_if(registry.optimizers, [](const OptimizerKind& kind) { return kind.name != "SGD"; });
  std::erase_if(registry.architectures, [](const auto& row) { return row.first != "llama"; });
  const TempDir dir;
  try {
    parse_config(R"({"model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4},
                     "batch": {"global_batch_size": 8},
                     "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}})",
                 {}, {.constraints = constraints_of(registry)});
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.problems(),
                ElementsAre("config: /model/architecture: is missing; it must be \"llama\"",
                            "config: /optimizer/type: is missing; it must be \"SGD\""));
  }
}

// A model like GPT-2 with constraints of its own.
class Small final : public Architecture {
 public:
  ModelConstraints constraints() const override {
    return {.tied = false, .check = [](const Config& config, ConfigProblems& problems) {
              if (config.model.num_layers > 2 && problems.sound("/model/num_layers")) {
                problems.add("/model/num_layers", "is more than 2, which small is not");
              }
            }};
  }
  TransformerShape shape(const Config& config) const override { return gpt2_->shape(config); }
  const FamilyFormats& formats() const override { return gpt2_->formats(); }

 private:
  std::shared_ptr<const Architecture> gpt2_ = make_gpt2();
};

TEST(Registry, AModelFromOutsideHasItsOwnDefaultsAndConstraints) {
  Registry registry = built_in_registry();
  registry.architectures["small"] = std::make_shared<Small>();
  const TempDir dir;
  const auto load = [&](const Overrides& overrides) {
    return seeded_config(
        "gpt2", dir.path(),
        Overrides{"model.architecture=small", "model.tie_word_embeddings=null"} + overrides, {},
        constraints_of(registry));
  };
  EXPECT_FALSE(load({"model.num_layers=2"}).model.tie_word_embeddings);
  EXPECT_TRUE(load({"model.num_layers=2", "model.rotary_base=5"}).model.rotary_base == 5);
  try {
    load({});
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.problems(),
                ElementsAre("config: /model/num_layers: is more than 2, which small is not"));
  }
}

TEST(Registry, AListWithOtherUpdatesThanItsRowIsAnError) {
  std::vector<ScheduleKind> registry = schedule_registry();
  registry.push_back({{.name = "hasty"}, [](const ScheduleRequest& request) {
                        return pipedream(request.stages, request.microbatches);
                      }});
  EXPECT_THROW(
      make_schedule({.kind = "hasty", .stages = 2, .microbatches = 4, .registry = &registry}),
      Error);
}

}  // namespace
}  // namespace trident::testing
