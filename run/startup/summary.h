// What a person reads on the terminal: progress while it trains, and how it ended.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/plan/plan.h"
#include "run/loop/trainer.h"
#include "settings/config.h"

namespace trident {

struct ProgressView {
  double seconds_left = -1;  // below 0: not known
  int columns = 0;           // 0: any number
  bool bar = false;
  bool colour = false;
  std::string clock = {};  // "12:31:07"; "": none
};

// One line: bar, iteration, loss, validation losses, tokens/s, step time, time left, learning rate,
// gradient norm, clock; where the columns don't suffice, what matters less is left out.
std::string progress_line(const Config&, const IterationMetrics&, const ProgressView&);

// The loss over the iterations, drawn in `rows` lines of at most `columns`.
std::string loss_curve(const std::vector<IterationMetrics>&, int columns = 80, int rows = 12);

struct Shared {
  std::string rate;   // what MFU is a share of: "of this machine's product rate"
  std::string ranks;  // what several ranks have together, "" where each has its own
};

// Loss curve, validation loss, bubble and memory measured beside predicted, paths. `sample` is a
// generated text, "" for none. `columns`: 0 for any number.
std::string closing_text(const Config&, const Plan&, const TrainingSummary&,
                         const std::string& sample, const Shared&, int columns = 0);

// The same as an object: iterations, loss (null where not finite), stopped, validation_loss (a
// number, or an object of named sets), loss_curve (means over equal stretches), sample,
// tokens_per_second and mfu (null: unknown), bubble_ratio, bubble_ratio_wall and bubble_predicted,
// all of counted_iterations in counted_seconds (run_speed.h), mfu_of and product_rate (FLOP/s),
// busy where measurements of that disagree, schedule, peak_memory and predicted_memory (bytes of
// the largest rank by category), written.
nlohmann::ordered_json closing_json(const Config&, const Plan&, const TrainingSummary&,
                                    const std::string& sample, const Shared&);

}  // namespace trident
