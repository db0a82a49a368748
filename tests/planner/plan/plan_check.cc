#include "planner/plan/plan_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/monitor.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "models/architecture.h"
#include "planner/plan/plan.h"
#include "support/temp_dir.h"

namespace trident::testing {
namespace {

struct Measured {
  std::int64_t parameters = 0, layers = 0;
  std::map<std::string, std::int64_t> peaks, sent;  // by category, by group
  std::int64_t peak = 0;
};

}  // namespace

std::map<std::string, std::int64_t> sent_by(const Stepper& stepper) {
  std::map<std::string, std::int64_t> sent;
  for (const TrafficGroup& group : stepper.topology().traffic_groups()) {
    sent[group.name] = group.members.defined() ? group.members.traffic().bytes_sent : 0;
  }
  sent["world"] += stepper.check_bytes_sent();
  return sent;
}

namespace {

// Returns the peaks of two steps, and the bytes that the second of them sent.
Measured measure(Rank& own) {
  Measured measured;
  for (const auto& parameter : unique_parameters(own.model.chunks())) {
    if (parameter->spec().role == ParameterRole::expert_bias) continue;  // a buffer
    measured.parameters += parameter->spec().placement.numel();
  }
  for (const Chunk& chunk : own.model.chunks()) {
    measured.layers += static_cast<std::int64_t>(chunk.modules.size());
    if (chunk.stage == 0) --measured.layers;
    if (chunk.stage + 1 == own.model.total_stages()) --measured.layers;
  }
  own.model.context().ledger().reset_peaks();
  Monitor monitor(own.stepper, own.model.topology().world.duplicate("monitor"));
  const auto step = [&](std::int64_t k) {
    monitor.begin();
    own.stepper.train(synthetic_batches(own.model, k), 1e-3);
    monitor.end();
    monitor.collect();
  };
  step(0);
  const auto before = sent_by(own.stepper);
  step(1);
  for (const auto& [group, bytes] : sent_by(own.stepper)) {
    measured.sent[group] = bytes - before.at(group);
  }
  const Ledger::Figures steps = own.model.context().ledger().figures();
  for (int c = 0; c < category_count; ++c) {
    measured.peaks[std::string(name_of(static_cast<Category>(c)))] =
        steps.peak[static_cast<std::size_t>(c)];
  }
  measured.peak = steps.peak_total;
  return measured;
}

}  // namespace

void expect_planned(const PlanCase& c, std::int64_t libraries,
                    const std::shared_ptr<const ConfigConstraints>& constraints) {
  std::string name = std::string(c.model) + " " + name_of(c.layout);
  for (const std::string& o : c.overrides) name += " " + o;
  SCOPED_TRACE(name);
  const TempDir dir;
  const Config config = seeded_config(c.model, dir.path(), overrides_of(c.layout) + c.overrides,
                                      axes_of(c.layout), constraints);
  const Plan plan = plan_each_rank(config, *architecture_of(config));
  ASSERT_EQ(plan.world_size, config.world_size());
  ASSERT_EQ(static_cast<std::int64_t>(plan.ranks.size()), config.world_size());
  std::vector<Measured> ranks(plan.ranks.size());
  on_ranks(config, transport_options(config), [&](Rank& own) {
    ranks[static_cast<std::size_t>(own.model.topology().world.rank())] = measure(own);
  });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    EXPECT_EQ(plan.ranks[r].rank, static_cast<std::int64_t>(r));
    EXPECT_EQ(plan.ranks[r].layers, ranks[r].layers);
    EXPECT_EQ(plan.ranks[r].parameters, ranks[r].parameters);
    for (const char* state : {"parameter", "gradient", "optimizer"}) {
      EXPECT_EQ(plan.ranks[r].bytes.at(state), ranks[r].peaks.at(state)) << state;
    }
    for (const auto& [category, bytes] : ranks[r].peaks) {
      const std::int64_t apart = category == "workspace" ? libraries : 0;
      // A category that is small compared with the peak is still planned within a factor of 4/3.
      EXPECT_GE(4 * (plan.ranks[r].bytes.at(category) - apart), 3 * (bytes - apart)) << category;
      EXPECT_LE(3 * (plan.ranks[r].bytes.at(category) - apart), 4 * (bytes - apart)) << category;
      EXPECT_NEAR(static_cast<double>(plan.ranks[r].bytes.at(category) - apart),
                  static_cast<double>(bytes - apart),
                  0.05 * static_cast<double>(ranks[r].peak - libraries))
          << category;
    }
    const std::int64_t peak =
        plan.ranks[r].peak_bytes - plan.ranks[r].bytes.at("library") - libraries;
    EXPECT_NEAR(static_cast<double>(peak) / static_cast<double>(ranks[r].peak - libraries), 1,
                0.05);
    EXPECT_EQ(plan.ranks[r].bytes_sent, ranks[r].sent);
  }
}

}  // namespace trident::testing
