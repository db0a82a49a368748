// Runs a config in many layouts and tells what each took. Every run is the program's own `train`,
// in processes of its own, so that one that fails or hangs ends alone.
//
// Files under `out`: settings.json (what is swept), config.json (what every run starts from),
// runs.jsonl (a line for each run that has ended, from which a sweep goes on), runs/NUMBER-REPEAT/
// (each run's own files and log.txt), machines/REPEAT.json (this machine, measured before a
// repeat).
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
  LoadOptions load;  // what "auto" stands for; of this machine
  std::vector<GridKey> grid;
  std::string out;
  bool overwrite = false;           // begins anew where `out` holds another sweep
  bool retry = false;               // runs again what has failed
  int iterations = 5, warm_up = 2;  // of a run: those that count, and those before them
  int repeats = 3;                  // runs of each point, interleaved
  bool weak = false;                // the batch grows with the copies of the model
  bool measure = false;             // this machine, before each repeat (bench machine)
  std::string known = {};           // a machine's file to which that adds; "": a new one
  double timeout = 600;             // seconds a run may take
  std::string program;              // `trident`
  std::vector<std::string> mpirun;  // starts processes where the transport needs them
  std::int64_t memory = 0;          // bytes that runs may take together
  // And a rank of a config, for a micro-batch that is "auto".
  std::function<std::int64_t(const Config&)> rank_memory = {};
  std::optional<Machine> machine;                // for predictions
  const std::atomic<bool>* stop = nullptr;       // asks it to stop between runs and in them
  std::function<void(const std::string&)> tell;  // a line of progress
};

// What can be run of a grid.
struct SweepPoint {
  std::string label;
  std::vector<std::string> set;
  std::size_t number = 0;  // place in the grid, from 1 on; 0: the base line alone
  Config config;
  std::vector<std::string> notes;  // of what has no effect in it (settings/ineffective_keys.h)
  std::int64_t processors = 1;     // cores or GPUs that it keeps busy
  std::int64_t planned_peak = 0;   // bytes of the largest rank's ledger, by the plan
  std::optional<double> simulated_seconds;  // of a step, where a machine is given
  bool replayed = false;  // they are of the replay, for ranks outnumber the machine's devices
  // Points with equal ones train the same model on the same samples, so they must lose alike.
  std::string same_loss;
  // Points with equal ones have a like speed on one device: the same model, type and sequences.
  std::string same_work;
};
struct SweepPlan {
  // The first is the base line, one rank, where that is valid.
  std::vector<SweepPoint> points;
  std::vector<std::pair<std::string, std::string>> invalid;        // label, reason
  std::vector<std::pair<std::string, std::string>> same;           // label, that of a like point
  std::vector<std::pair<std::string, std::string>> not_predicted;  // by the request's machine
};

// The config without what a measurement has no use for, its global batch as a number. Each run's
// own folder comes by --set.
nlohmann::json sweep_base(const SweepRequest&);
// RequestError where a value is unknown in every combination, or no point is valid.
SweepPlan plan_sweep(const SweepRequest&);
// Runs what has not been run; the document of sweep.json. `machine`: about this one, for readers.
// Stopped early it tells of what there is.
nlohmann::ordered_json run_sweep(const SweepRequest&, const SweepPlan&,
                                 const nlohmann::ordered_json& machine);

// What a sweep that measures its machine found. RequestError where it has found nothing.
Machine measured_machine(const SweepRequest&);

// Where points have predictions: how well those agree with the median iterations, those of crowded
// machines replayed (planner/sweep/machine_fit.h).
void add_agreement(nlohmann::ordered_json& sweep);
// The machine whose predictions agree best; the document then has those.
Machine fit_sweep(nlohmann::ordered_json& sweep, const SweepPlan&, const Machine&);
std::string agreement_text(const nlohmann::ordered_json& sweep);

// Of a sweep's document (report/sweep_report.h makes its page).
std::string sweep_csv(const nlohmann::ordered_json& sweep);   // a row a point
std::string sweep_text(const nlohmann::ordered_json& sweep);  // for a terminal

}  // namespace trident
