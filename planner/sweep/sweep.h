// Runs a config in many layouts and reports the time and memory of each. Every run is the program's
// own `train` in processes of its own, so a run that fails or hangs ends alone. A lock admits one
// sweep at a time to a folder.
//
// Files under `out`: settings.json (the sweep's settings), config.json (the base of every run),
// runs.jsonl (a line for each ended run; a sweep resumes from it), runs/NUMBER-REPEAT/ (each run's
// own files and log.txt), machines/REPEAT.json (this machine, measured before a repeat).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/machine/machine.h"
#include "planner/search/grid.h"
#include "settings/config.h"

namespace trident {

struct SweepRequest {
  LoadedConfig base;
  LoadOptions load;  // what this machine offers for "auto"
  std::vector<GridKey> grid;
  std::string out;
  bool overwrite = false;           // starts again where `out` holds another sweep
  bool retry = false;               // runs failed points again
  int iterations = 5, warm_up = 2;  // of a run: measured iterations, and iterations before them
  int repeats = 3;                  // runs of each point, interleaved
  bool weak = false;                // weak scaling: the batch grows with the copies of the model
  bool measure = false;             // measure this machine before each repeat (bench machine)
  std::string known = {};           // a machine's file that the measurement extends; "": a new one
  double timeout = 600;             // seconds of a run
  std::string program;              // path of `trident`
  std::vector<std::string> mpirun;  // starts processes where the transport needs them
  std::int64_t memory = 0;          // bytes for all ranks of a run
  // Returns the bytes for a rank of a config, for a micro-batch size of "auto".
  std::function<std::int64_t(const Config&)> rank_memory = {};
  std::optional<Machine> machine;                  // the machine that predictions are for
  const std::atomic<bool>* stop = nullptr;         // stops the sweep between runs and in them
  std::function<void(const std::string&)> report;  // called with each line of progress
};

// A point of the grid that can be run.
struct SweepPoint {
  std::string label;
  std::vector<std::string> set;
  std::size_t number = 0;  // place in the grid, from 1; 0: only the base line
  Config config;
  std::vector<std::string> notes;           // on keys without effect (settings/ineffective_keys.h)
  std::int64_t processors = 1;              // cores or GPUs that it uses
  std::int64_t planned_peak = 0;            // bytes of the largest rank's ledger, by the plan
  std::optional<double> simulated_seconds;  // of a step, if a machine is given
  bool replayed = false;  // predicted for the replay: more ranks than the machine's devices
  // Points with equal values train the same model on the same samples, so their losses must agree.
  std::string same_loss;
  // Points with equal values do the same work on one device: the same model, type and sequence
  // length.
  std::string same_work;
};
struct SweepPlan {
  // The first point is the base line, one rank, if that config is valid.
  std::vector<SweepPoint> points;
  std::vector<std::pair<std::string, std::string>> invalid;  // label, reason
  std::vector<std::pair<std::string, std::string>> same;     // label, label of the equal point
  // Label, reason: the request's machine can't run it.
  std::vector<std::pair<std::string, std::string>> not_predicted;
};

// Returns the config without the keys that a measurement doesn't need, and with its global batch as
// a number. Each run gets its own folder by --set.
nlohmann::json sweep_base(const SweepRequest&);
// Throws RequestError where a value is unknown in every combination, or where no point is valid.
SweepPlan plan_sweep(const SweepRequest&);
// Runs the points that have no run yet and returns the document of sweep.json. `machine` describes
// this machine for readers. If the sweep is stopped early, the document has the runs so far.
nlohmann::ordered_json run_sweep(const SweepRequest&, const SweepPlan&,
                                 const nlohmann::ordered_json& machine);

// Returns the machine that the sweep measured: the median of its repeats. Throws RequestError where
// there is no measurement.
Machine measured_machine(const SweepRequest&);

// Adds the agreement of predictions with the median iterations, or with the median replay where the
// ranks outnumber the machine's devices (planner/sweep/machine_fit.h).
void add_agreement(nlohmann::ordered_json& sweep);
// Returns the machine whose predictions agree best, and puts those predictions into the document.
Machine fit_sweep(nlohmann::ordered_json& sweep, const SweepPlan&, const Machine&);
std::string agreement_text(const nlohmann::ordered_json& sweep);

// Both print a sweep's document (report/sweep_report.h makes its page).
std::string sweep_csv(const nlohmann::ordered_json& sweep);   // one row per point
std::string sweep_text(const nlohmann::ordered_json& sweep);  // for a terminal

}  // namespace trident
