// Greedy list scheduling: builds schedules in time order by a rule. Pure functions; automatic()
// uses them.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "scheduler/search_problem.h"

namespace trident {

// The preferences of a rank among the actions that it could run.
struct GreedyRule {
  enum class First : std::uint8_t { backward, forward, alternate } first = First::backward;
  // Limits the idle time of a rank (as in Qi et al. 2023, section 3.1). The rank runs a weight
  // gradient that would delay its next input only if waiting would raise its idle time since its
  // first action above this limit. 0: always.
  double idle_budget = 0.0;
  // For each rank [p], the largest number of chunk forwards that may be ahead of their backwards.
  std::vector<double> most_ahead;
  // A micro-batch begins only where its rank has memory for all its chunks.
  bool reserves = false;
  bool late_chunks_forward = false;  // prefer the later of two ready chunks
  bool late_chunks_backward = false;
};

// The rules to try. The rules that usually do well come first.
std::vector<GreedyRule> greedy_rules(const SearchProblem&);

// Simulates the pipeline in time order. Each free rank runs the ready action that the rule prefers.
// The micro-batches of a stage go in order, in each of F, I and W. Returns nullopt where the memory
// limit stops the pipeline.
std::optional<Schedule> greedy(const SearchProblem&, const GreedyRule&);

}  // namespace trident
