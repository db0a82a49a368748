// Lists made in time order by a rule.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "scheduler/search_problem.h"

namespace trident {

// What a rank does when it may choose.
struct GreedyRule {
  enum class First : std::uint8_t { backward, forward, alternate } first = First::backward;
  // A weight gradient that would delay the next input is taken where the rank would else have been
  // idle for longer than this since it began (as in Qi et al. 2023, section 3.1). 0: always.
  double idle_budget = 0.0;
  // Most chunks that each rank has forward and not yet backward, [p].
  std::vector<double> most_ahead;
  // A micro-batch begins only where its rank has room for all its chunks.
  bool reserves = false;
  bool late_chunks_forward = false;  // of two chunks that could run, the later one
  bool late_chunks_backward = false;
};

// The rules to try, those that do well mostly first.
std::vector<GreedyRule> greedy_rules(const SearchProblem&);

// Runs the pipeline in time order; each rank, when it is free, takes what the rule prefers among
// what is there. Micro-batches of a stage go in order, in each of F, I and W. Nothing where the
// memory makes it stop.
std::optional<Schedule> greedy(const SearchProblem&, const GreedyRule&);

}  // namespace trident
