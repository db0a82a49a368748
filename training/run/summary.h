// What a person reads on the terminal: progress while it trains, and how it ended.
#pragma once

#include <string>

#include "config/config.h"
#include "training/plan/plan.h"
#include "training/run/trainer.h"

namespace trident {

// One line: bar, iteration, loss, tokens/s, time left.
std::string progress_line(const Config&, const IterationMetrics&, double seconds_left);

// The loss over the iterations, drawn in `columns` × `rows` characters.
std::string loss_curve(const std::vector<IterationMetrics>&, int columns = 72, int rows = 12);

struct Shared {
  std::string rate;   // what MFU is a share of: "of this machine's product rate"
  std::string ranks;  // what several ranks have together, "" where each has its own
};

// Loss curve, validation loss, bubble and memory measured beside predicted, paths. `sample` is a
// generated text, "" for none.
std::string closing_text(const Config&, const Plan&, const TrainingSummary&,
                         const std::string& sample, const Shared&);

}  // namespace trident
