// The texts that a run shows on the terminal: a progress line while it trains, and a closing
// summary. These functions only build strings; they print and write nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/plan/plan.h"
#include "run/loop/trainer.h"
#include "settings/config.h"

namespace trident {

struct ProgressView {
  double seconds_left = -1;  // below 0: unknown
  int columns = 0;           // width of the terminal; 0: unlimited
  bool bar = false;
  bool colour = false;
  std::string clock = {};  // "12:31:07"; "": none
};

// One line: bar, iteration, loss, validation losses, tokens/s, step time, time left, learning rate,
// gradient norm, clock. Leaves out the less important parts where the columns don't suffice.
std::string progress_line(std::int64_t train_iters, const IterationMetrics&, const ProgressView&);

// A plot of the loss over the iterations, in `rows` lines of at most `columns` characters.
std::string loss_curve(const std::vector<IterationMetrics>&, int columns = 80, int rows = 12);

// Facts about the machine that the summary needs.
struct Shared {
  std::string rate;   // the rate that MFU relates to: "of this machine's product rate"
  std::string ranks;  // which cores or GPUs ranks share, "" where each has its own
};

// Loss curve, validation loss, measured and predicted bubble and memory, paths of written files, a
// generated text. `columns` is the line width, 0 for unlimited.
std::string closing_text(const PipelineConfig&, const Plan&, const TrainingSummary&, const Shared&,
                         int columns = 0);

// The same as a JSON object: iterations, loss (null where not finite), stopped, validation_loss (a
// number, or an object of named sets), loss_curve (means over equal intervals), sample,
// tokens_per_second and mfu (null: unknown), bubble_ratio, bubble_ratio_wall and bubble_predicted,
// all over counted_iterations in counted_seconds (report/run_speed.h), mfu_of and product_rate
// (FLOP/s), busy where measurements of that rate disagree, schedule, peak_memory and
// predicted_memory (bytes of the largest rank by category), written.
nlohmann::ordered_json closing_json(const Config&, const Plan&, const TrainingSummary&,
                                    const Shared&);

}  // namespace trident
