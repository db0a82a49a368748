// The layout that "parallel": "auto" chooses.
#include "run/startup/auto_layout.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "engine/setup/model_costs.h"
#include "engine/setup/registry.h"
#include "planner/plan/fit.h"
#include "planner/plan/planned_rank.h"
#include "planner/search/layout_search.h"
#include "run/startup/measured_models.h"
#include "support/source_dir.h"

namespace trident::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Overrides = std::vector<std::string>;

constexpr const char* kModel = R"({
  "model": {"num_layers": 8, "hidden_size": 256, "num_attention_heads": 8, "vocab_size": 1024},
  "parallel": "auto",
  "batch": {"global_batch_size": 32},
  "data": {"train": [{"path": "text"}], "sequence_length": 128},
  "training": {"train_iters": 4},
  "runtime": {"device": "cpu"}
})";

// A machine of eight cores with links.
Machine cores() {
  return parse_machine(R"({"name": "cores", "source": "made up", "devices_per_node": 8, "nodes": 1,
    "device": {"kind": "cpu", "name": "core", "memory": 4e9, "memory_bandwidth": 1e10,
               "peak": {"fp32": 5e10}, "units": 1, "launch": 1e-6},
    "inside": {"bandwidth": 5e9, "latency": 2e-6}, "across": {"bandwidth": 1e9, "latency": 2e-5}})",
                       "cores");
}

class AutoLayout : public ::testing::Test {
 protected:
  LoadOptions options(std::int64_t ranks) const {
    return {.constraints = built_in_constraints(), .ranks = ranks, .cores = 8};
  }
  ChosenLayout choose(const Overrides& set, std::int64_t ranks = 4,
                      std::int64_t memory = 4'000'000'000,
                      const MachineSource& source = {.machine = cores()}) const {
    return choose_layout(parse_config(kModel, set, options(ranks)), options(ranks),
                         {.ranks = ranks, .ranks_per_node = ranks, .memory = memory}, source);
  }
  // The config of the job with the chosen layout.
  Config chosen(Overrides set, std::int64_t ranks = 4, std::int64_t memory = 4'000'000'000) const {
    for (const std::string& one : choose(set, ranks, memory).set) set.push_back(one);
    return parse_config(kModel, set, options(ranks)).config;
  }
};

TEST_F(AutoLayout, IsTheBestThatTheSearchFinds) {
  const Config config = chosen({});
  EXPECT_EQ(config.world_size(), 4);
  LayoutRequest request{.written = parse_config(kModel, {}, options(4)).written,
                        .load = options(4),
                        .machine = cores(),
                        .global_batch_size = 32,
                        .memory = 4'000'000'000,
                        .ranks = {4},
                        .fastest = true};
  request.load.ranks.reset();
  const FoundLayout best = search_layouts(request).plans.front();
  EXPECT_EQ(config.parallel, best.config.parallel);
  EXPECT_EQ(config.pipeline, best.config.pipeline);
  EXPECT_EQ(config.batch, best.config.batch);
  EXPECT_EQ(config.zero_optimization.stage, best.config.zero_optimization.stage);
  EXPECT_THAT(choose({}).text, AllOf(HasSubstr("predictions for cores"), HasSubstr("4 ranks")));
}

TEST_F(AutoLayout, KeepsTheSettingsOfTheConfig) {
  // The search would choose none of these values itself.
  const Config free = chosen({});
  const Config held =
      chosen({"zero_optimization.stage=2", "batch.micro_batch_size=1",
              "activation_checkpointing.granularity=full", "pipeline.schedule=gpipe"});
  EXPECT_NE(free.activation_checkpointing.granularity, "full");
  EXPECT_EQ(held.zero_optimization.stage, 2);
  EXPECT_EQ(held.batch.micro_batch_size, 1);
  EXPECT_EQ(held.activation_checkpointing.granularity, "full");
  EXPECT_EQ(held.pipeline.schedule, "gpipe");
  EXPECT_EQ(held.world_size(), 4);

  const Config accumulated = chosen({"batch.gradient_accumulation_steps=16"});
  EXPECT_EQ(accumulated.num_microbatches(), 16);
  const Config twice = chosen({"batch.gradient_accumulation_steps=16", "batch.micro_batch_size=1"});
  EXPECT_EQ(twice.parallel.ranks(Group::batch), 2);
  const Config interleaved = chosen({"pipeline.schedule=interleaved_1f1b"});
  EXPECT_EQ(interleaved.pipeline.schedule, "interleaved_1f1b");
  EXPECT_GT(interleaved.stages(), 2);
  const Config v = chosen({"pipeline.schedule=zbv", "pipeline.layer_split=auto"});
  EXPECT_EQ(v.parallel.virtual_pipeline_model_parallel_size, 2);
  const Config split = chosen({"pipeline.layer_split=[1,3,2,2]"});
  EXPECT_EQ(split.pipeline.layer_split, (std::vector<std::int64_t>{1, 3, 2, 2}));
  EXPECT_EQ(split.stages(), 4);
  // "auto" fixes no value.
  EXPECT_EQ(chosen({"batch.micro_batch_size=auto"}).batch, free.batch);
}

TEST_F(AutoLayout, FitsTheMemory) {
  const Config wide = chosen({}), tight = chosen({}, 4, 80'000'000);
  EXPECT_NE(config_to_json(wide), config_to_json(tight));
  EXPECT_THROW(choose({}, 4, 1'000'000), RequestError);
}

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const RequestError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST_F(AutoLayout, NamesTheMissingInput) {
  EXPECT_THAT(refusal([&] {
                choose({"batch={}", "batch.micro_batch_size=2"});
              }),
              HasSubstr("/batch/global_batch_size: has to be given where parallel is \"auto\""));
  EXPECT_THAT(refusal([&] { choose({}, 8, 4'000'000'000, {}); }),
              HasSubstr("/parallel: \"auto\" needs runtime.machine"));
  EXPECT_THAT(refusal([&] { choose({"runtime.machine=nothing.json"}, 8, 4'000'000'000, {}); }),
              HasSubstr("nothing.json"));
  EXPECT_THAT(refusal([&] { choose({"pipeline.schedule_file=mine.csv"}); }),
              HasSubstr("/pipeline/schedule_file: is for one layout"));
  EXPECT_THAT(refusal([&] {
                choose({}, 8, 1'000'000,
                       {.measure = [](const auto&, std::int64_t) { return cores(); }});
              }),
              HasSubstr("measures a small model like this one, which doesn't fit"));
  const std::string gpus = source_dir() + "/configs/machines/dgx_a100.json";
  EXPECT_THAT(refusal([&] { choose({"runtime.machine=" + gpus}, 8, 4'000'000'000, {}); }),
              HasSubstr("has a GPU, runtime.device is \"cpu\""));
  const MachineSource source{.measure = [](const auto&, std::int64_t) { return cores(); }};
  EXPECT_THAT(refusal([&] {
                choose_layout(parse_config(kModel, {}, options(8)), options(8),
                              {.ranks = 8, .ranks_per_node = 4, .memory = 1 << 30}, source);
              }),
              HasSubstr("links between nodes aren't measured here"));
}

TEST_F(AutoLayout, MeasuresSmallModelsOfEachTensorParallelSize) {
  std::vector<std::int64_t> sizes;
  std::int64_t most_layers = 0;
  const MachineSource source{.measure = [&](const std::vector<Config>& models, std::int64_t) {
    for (const Config& model : models) {
      sizes.push_back(model.world_size());
      most_layers = std::max(most_layers, model.model.num_layers);
    }
    return cores();
  }};
  const ChosenLayout measured = choose({}, 4, 4'000'000'000, source);
  EXPECT_THAT(sizes, AllOf(Contains(1), Contains(2), Contains(4), Not(Contains(3))));
  EXPECT_LE(most_layers, 2);
  EXPECT_EQ(measured.set, choose({}).set);
  EXPECT_THAT(measured.set.front(), StartsWith("parallel={}"));
}

// The measured kernels stay small, also for a model of 405 billion parameters.
TEST_F(AutoLayout, MeasuresModelsWithinItsBudget) {
  const std::string large = R"({
    "model": {"architecture": "llama", "num_layers": 126, "hidden_size": 16384,
              "num_attention_heads": 128, "num_query_groups": 8, "ffn_hidden_size": 53248,
              "vocab_size": 128256, "max_position_embeddings": 8192},
    "parallel": "auto", "batch": {"global_batch_size": 2048}, "precision": {"dtype": "bf16"},
    "data": {"train": [{"path": "text"}], "sequence_length": 8192,
             "tokenizer": {"type": "file", "path": "tokenizer.json"}},
    "training": {"train_iters": 4}, "runtime": {"device": "cpu"}})";
  const MeasureBudget budget;
  for (const std::int64_t cores : {1, 8}) {
    LoadOptions load = options(cores);
    load.ranks.reset();
    load.local_ranks = load.cores = cores;
    const JobSize job{.ranks = cores, .ranks_per_node = cores, .memory = std::int64_t{1} << 40};
    const std::vector<Config> models =
        models_to_measure(parse_config(large, {}, load), load, job, budget);
    std::vector<std::int64_t> tensor;
    for (const Config& model : models) {
      const Architecture& architecture = *architecture_of(model);
      tensor.push_back(model.parallel.tensor_model_parallel_size);
      EXPECT_LE(*planned_peak(model, architecture) - library_bytes(model), budget.bytes / cores);
      EXPECT_LE(flops_per_step(model, architecture) / static_cast<double>(tensor.back()),
                budget.flops);
      EXPECT_EQ(model.model.architecture, "llama");
    }
    EXPECT_THAT(tensor, AllOf(Contains(1), Contains(cores)));
  }
}

}  // namespace
}  // namespace trident::testing
