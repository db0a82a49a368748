#include "planner/search/layout_bounds.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <set>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "planner/sweep/machine_fit.h"
#include "support/covering.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

// A model, a machine and the fixed settings of a layout. The space is small enough to simulate all
// its layouts.
struct Space {
  const char* name;
  std::string written;
  Machine machine;
  std::int64_t ranks = 4, global_batch_size = 8;
  std::vector<std::string> held = {};
};

std::string model_text(const std::string& model, int micro_batch, const std::string& rest) {
  return fmt::format(
      R"({{"model": {{{}}}, "parallel": {{"data_parallel_size": 1}},
           "batch": {{"global_batch_size": 8, "micro_batch_size": {}}},
           "data": {{"train": [{{"path": "text"}}], "sequence_length": 256,
                    "tokenizer": {{"type": "file", "path": "tokenizer.json"}}}},
           "training": {{"train_iters": 100}}, {}}})",
      model, micro_batch, rest);
}

std::string with_sequence(int length, std::string text) {
  const std::string usual = R"("sequence_length": 256)";
  text.replace(text.find(usual), usual.size(), fmt::format(R"("sequence_length": {})", length));
  return text;
}

// Eight cores with measured kernels and a skew: ranks wait for the slowest one.
Machine measured_cores() {
  Machine machine = parse_machine(R"({"name": "cores", "devices_per_node": 8, "nodes": 1,
    "device": {"kind": "cpu", "name": "core", "memory": 4e9, "memory_bandwidth": 1e10, "skew": 0.1,
               "peak": {"fp32": 5e10}, "units": 1, "launch": 1e-6,
               "kernels": [["gemm nt", "fp32", 256, 256, 256, 1e-3],
                           ["gemm nn", "fp32", 256, 256, 256, 1.2e-3],
                           ["gelu_forward", "fp32", 1e5, 2e-5], ["gelu_forward", "fp32", 1e7, 4e-3]]},
    "inside": {"bandwidth": 5e9, "latency": 2e-6}, "across": {"bandwidth": 1e9, "latency": 2e-5}})",
                                  "cores");
  return machine;
}

Machine nodes_of_three() {
  Machine machine = measured_cores();
  machine.devices_per_node = 3;
  machine.nodes = 4;
  machine.across.bandwidth = 1e8;
  return machine;
}

// An exchange of tokens takes as long as the products.
Machine slowly_linked_cores() {
  Machine machine = measured_cores();
  machine.inside.bandwidth = 1e8;
  return machine;
}

// Qwen3-MoE's sizes, much reduced.
constexpr const char* kMixture =
    R"("architecture": "qwen3_moe", "num_layers": 4, "hidden_size": 256, "num_attention_heads": 8,
       "num_query_groups": 4, "head_dim": 32, "ffn_hidden_size": 512, "vocab_size": 4096,
       "moe": {"num_experts": 8, "router_topk": 2, "ffn_hidden_size": 128})";

std::vector<Space> spaces() {
  return {
      {"a GPT on GPUs",
       model_text(R"("num_layers": 5, "hidden_size": 1024, "num_attention_heads": 8,
                     "vocab_size": 8192)",
                  2, R"("precision": {"dtype": "bf16"}, "runtime": {"device": "cuda"})"),
       dgx_a100(),
       4,
       8,
       {"batch.micro_batch_size"}},
      {"a Llama with a heavy head on slow links",
       model_text(R"("architecture": "llama", "num_layers": 6, "hidden_size": 512,
                     "num_attention_heads": 8, "num_query_groups": 4, "ffn_hidden_size": 1408,
                     "vocab_size": 32000, "max_position_embeddings": 256)",
                  1, R"("precision": {"dtype": "bf16"}, "runtime": {"device": "cuda"},
                     "activation_checkpointing": {"granularity": "full"})"),
       machine_named("ethernet_16x100g"),
       4,
       8,
       {"activation_checkpointing.granularity"}},
      {"measured cores",
       model_text(R"("num_layers": 4, "hidden_size": 256, "num_attention_heads": 8,
                     "vocab_size": 1024)",
                  1, R"("zero_optimization": {"stage": 2}, "runtime": {"device": "cpu"})"),
       measured_cores(),
       4,
       8,
       {"zero_optimization.stage"}},
      {"nodes of three that no tensor group divides, windows in some layers",
       model_text(R"("architecture": "qwen3", "num_layers": 6, "hidden_size": 256,
                     "num_attention_heads": 8, "head_dim": 48, "ffn_hidden_size": 512,
                     "vocab_size": 1024, "sliding_window": 8, "window_layers": [0, 2, 4])",
                  1, R"("zero_optimization": {"stage": 1}, "runtime": {"device": "cpu"})"),
       nodes_of_three(),
       2,
       4,
       {"zero_optimization.stage"}},
      {"a mixture of experts on GPUs",
       model_text(kMixture, 1,
                  R"("precision": {"dtype": "bf16"}, "runtime": {"device": "cuda"},
                     "zero_optimization": {"stage": 1},
                     "activation_checkpointing": {"granularity": "none"})"),
       dgx_a100(),
       4,
       8,
       {"zero_optimization.stage", "activation_checkpointing.granularity",
        "batch.micro_batch_size"}},
      {"a mixture of experts on measured cores with slow links",
       model_text(kMixture, 2,
                  R"("runtime": {"device": "cpu"}, "pipeline": {"schedule": "1f1b"},
                     "zero_optimization": {"stage": 2})"),
       slowly_linked_cores(),
       4,
       8,
       {"pipeline.schedule", "zero_optimization.stage", "batch.micro_batch_size"}},
      {"long samples that ranks share",
       with_sequence(16385,
                     model_text(R"("architecture": "llama", "num_layers": 4, "hidden_size": 512,
                                "num_attention_heads": 8, "num_query_groups": 4,
                                "ffn_hidden_size": 1408, "vocab_size": 8192)",
                                1, R"("precision": {"dtype": "bf16"}, "runtime": {"device": "cuda"},
                                   "pipeline": {"schedule": "1f1b"})")),
       machine_named("ethernet_16x100g"),
       4,
       8,
       {"pipeline.schedule", "batch.micro_batch_size"}},
  };
}

// A randomly drawn space, the same for the same seed.
Space drawn_space(std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  const auto of = [&]<class T>(std::initializer_list<T> choices) {
    return std::data(choices)[bits() % choices.size()];
  };
  const bool gpus = of({true, true, false}), llama = of({true, false});
  const int hidden = of({256, 512, 1024});
  std::string model = fmt::format(
      R"("num_layers": {}, "hidden_size": {}, "num_attention_heads": 8, "ffn_hidden_size": {},
         "vocab_size": {}, "max_position_embeddings": 256, "tie_word_embeddings": {})",
      of({3, 4, 6, 7}), hidden, hidden * of({2, 3, 4}), of({512, 8192, 50304}),
      of({"true", "false"}));
  std::string rest = gpus ? R"("precision": {"dtype": "bf16"}, "runtime": {"device": "cuda"})"
                          : R"("runtime": {"device": "cpu"})";
  std::vector<std::string> held;
  const char* schedule =
      of({"", "", "gpipe", "1f1b", "zb_h1", "zb_h2", "interleaved_1f1b", "looped_bfs",
          "interleaved_zero_bubble", "zbv", "dualpipev", "pipedream_2bw"});
  if (schedule[0] != 0) {
    rest += fmt::format(R"(, "pipeline": {{"schedule": "{}"}})", schedule);
    held.emplace_back("pipeline.schedule");
  }
  rest += fmt::format(R"(, "zero_optimization": {{"overlap_comm": {}{}}})",
                      of({"true", "true", "false"}),
                      of({"", "", R"(, "stage3_param_persistence_threshold": 0)"}));
  if (of({true, false})) {
    rest += R"(, "activation_checkpointing": {"granularity": "full", "num_layers": 2})";
    held.emplace_back("activation_checkpointing.granularity");
  }
  rest += of({"", R"(, "optimizer": {"type": "SGD", "params": {"lr": 0.1}})"});
  Machine machine =
      gpus ? of({true, false}) ? dgx_a100() : machine_named("ethernet_16x100g") : measured_cores();
  if (of({false, false, true})) {
    machine.devices_per_node = of({3, 6});
    machine.nodes = 4;
  }
  const int ranks = of({2, 4, 8}), global_batch_size = of({8, 16});
  if (of({false, true})) {
    model += fmt::format(R"(, "architecture": "qwen3_moe", "moe": {{"num_experts": {},
                             "router_topk": {}, "ffn_hidden_size": {}, "layer_freq": {}}})",
                         of({4, 6, 8}), of({1, 2, 4}), of({64, 192}), of({1, 1, 2}));
  } else {
    model += fmt::format(R"(, "architecture": "{}")", llama ? "llama" : "gpt2");
  }
  return {"", model_text(model, 1, rest), machine, ranks, global_batch_size, held};
}

LayoutRequest request_of(const Space& space) {
  LayoutRequest asked{.written = space.written,
                      .machine = space.machine,
                      .global_batch_size = space.global_batch_size,
                      .held = space.held,
                      .ranks = {space.ranks}};
  asked.load.constraints = built_in_constraints();
  asked.load.device = space.machine.device.gpu ? "cuda" : "cpu";
  return asked;
}

struct Simulated {
  double seconds = 0;
  std::int64_t bytes = 0;
  auto operator<=>(const Simulated&) const = default;
};

// All layouts of a space with their bounds, and their simulated seconds and bytes.
std::vector<std::pair<Layout, Simulated>> simulated_layouts(const LayoutRequest& asked) {
  const LayoutChoices choices(asked);
  LayoutBounds bounds(asked, choices);
  std::vector<std::pair<Layout, Simulated>> all;
  choices.each(
      asked.ranks.front(),
      [&](Layout one) {
        if (!bounds.bound(one).empty()) return;
        try {
          const Config config = choices.parse(choices.set_of(one));
          const SimulatedStep step =
              simulate_step(config, *architecture_of(config), asked.machine,
                            Assumptions::of(config.zero_optimization, config.parallel));
          all.emplace_back(one, Simulated{step.seconds, step.peak_bytes});
        } catch (const RequestError&) {
          return;  // the search finds the same error
        }
      },
      [](const std::string&) {});
  return all;
}

// The Pareto front of the layouts that fit.
std::set<Simulated> front_of(const std::vector<std::pair<Layout, Simulated>>& all, double memory) {
  std::set<Simulated> front;
  for (const auto& [layout, one] : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&, &own = one](const auto& other) {
      const Simulated& o = other.second;
      return o != own && o.seconds <= own.seconds && o.bytes <= own.bytes &&
             static_cast<double>(o.bytes) <= memory;
    });
    if (!beaten && static_cast<double>(one.bytes) <= memory) front.insert(one);
  }
  return front;
}

std::set<Simulated> found_front(const LayoutSearch& found) {
  std::set<Simulated> front;
  for (const FoundLayout& plan : found.plans) {
    front.insert({plan.seconds, plan.peak_bytes});
    for (const FoundLayout& near : plan.near) front.insert({near.seconds, near.peak_bytes});
  }
  return front;
}

// Expects that the bounds of each layout are below its simulated time and its planned memory.
void expect_below(const LayoutRequest& asked,
                  const std::vector<std::pair<Layout, Simulated>>& simulated) {
  const LayoutChoices choices(asked);
  for (const auto& [layout, one] : simulated) {
    EXPECT_LE(layout.seconds, one.seconds * (1 + 1e-9))
        << ::testing::PrintToString(choices.set_of_all(layout));
    EXPECT_LE(layout.bytes, static_cast<double>(one.bytes) * (1 + 1e-9))
        << ::testing::PrintToString(choices.set_of_all(layout));
  }
}

// For every layout of the spaces, the bounds are below the simulated time and the planned memory.
// The search finds the Pareto front of each space, with much memory and with little.
TEST(LayoutBounds, AreBelowTheSimulationAndLeaveTheFullFrontToTheSearch) {
  for (const Space& space : spaces()) {
    SCOPED_TRACE(space.name);
    LayoutRequest asked = request_of(space);
    const auto all = simulated_layouts(asked);
    ASSERT_GE(all.size(), 60);
    expect_below(asked, all);
    std::vector<double> bounds, seconds;
    for (const auto& [layout, one] : all) {
      bounds.push_back(layout.seconds), seconds.push_back(one.seconds);
    }
    // The bounds' order is close enough to the real one to choose well which layouts are simulated
    // first.
    EXPECT_GT(agreement(bounds, seconds, 0).order, 0.8);
    std::vector<std::int64_t> bytes;
    for (const auto& [layout, one] : all) bytes.push_back(one.bytes);
    std::nth_element(bytes.begin(), bytes.begin() + std::ssize(bytes) / 4, bytes.end());
    for (const std::int64_t memory : {std::int64_t{0}, bytes[bytes.size() / 4]}) {
      asked.memory = memory;
      const LayoutSearch found = search_layouts(asked);
      const double limit = memory > 0 ? static_cast<double>(memory) : asked.machine.device.memory;
      EXPECT_EQ(found_front(found), front_of(all, limit));
      EXPECT_LT(found.simulated, std::ssize(all));
      // A search for the fastest layout alone finds it as well.
      LayoutRequest fastest = asked;
      fastest.fastest = true;
      EXPECT_EQ(search_layouts(fastest).plans.front().seconds, found.plans.front().seconds);
    }
  }
}

TEST(LayoutBounds, AreBelowTheSimulationOfDrawnSpaces) {
  const std::uint64_t count = tests_are_full() ? 40 : 1;
  std::size_t layouts = 0;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const Space space = drawn_space(seed);
    SCOPED_TRACE(fmt::format("seed {}, {} ranks: {}", seed, space.ranks, space.written));
    const LayoutRequest asked = request_of(space);
    const auto all = simulated_layouts(asked);
    layouts += all.size();
    expect_below(asked, all);
  }
  EXPECT_GT(layouts, 10 * count);
}

// Layouts of expert parallelism among them, with and without an exchange of tokens.
TEST(LayoutBounds, AreBelowTheSimulationOfMixturesOfExperts) {
  std::vector<Space> mixtures = spaces();
  std::erase_if(mixtures, [](const Space& one) {
    return one.written.find("num_experts") == std::string::npos;
  });
  ASSERT_EQ(mixtures.size(), 2);
  for (const Space& space : mixtures) {
    SCOPED_TRACE(space.name);
    const LayoutRequest asked = request_of(space);
    const auto all = simulated_layouts(asked);
    std::set<std::pair<std::int64_t, std::int64_t>> expert_sizes;
    for (const auto& [layout, one] : all) {
      expert_sizes.insert({layout.ep, layout.expert_tensor()});
    }
    EXPECT_THAT(expert_sizes,
                ::testing::IsSupersetOf(
                    {std::pair<std::int64_t, std::int64_t>(1, 1), {2, 1}, {4, 1}, {2, 2}}));
    expect_below(asked, all);
  }
}

TEST(LayoutBounds, NameTheReasonWhereALayoutIsInvalid) {
  const LayoutRequest asked = request_of(spaces().front());
  const LayoutChoices choices(asked);
  LayoutBounds bounds(asked, choices);
  Layout one{.tp = 16, .dp = 1, .micro = 1, .microbatches = 8};
  EXPECT_THAT(bounds.bound(one), HasSubstr("num_attention_heads"));
  // 4 divides the 8 heads.
  one.tp = 4;
  EXPECT_EQ(bounds.bound(one), "");
  EXPECT_GT(one.seconds, 0);
  EXPECT_GT(one.bytes, 0);
}

}  // namespace
}  // namespace trident::testing
