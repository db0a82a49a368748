// Runs a training job from its loaded config to its end. `trident train` uses this interface, and a
// program that links the library can use it too.
//
//   const Launch launch;  // a process by itself
//   const TrainingJob job = prepare_job(load({.path = "config.json"}, launch), launch);
//   const TrainingSummary summary = run_job(job, {});
//
// Under mpirun each process makes the same calls with its own Launch, between
// launch.start->join("train") and finish(). A process reports its error to the others by fail().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "planner/plan/plan.h"
#include "report/best_rates.h"
#include "run/loop/trainer.h"
#include "run/processes/devices.h"
#include "run/processes/launch.h"
#include "run/startup/bf16_products.h"
#include "settings/config.h"

namespace trident {

struct TrainingJob {
  Launch launch;
  Devices devices;  // the devices of this process
  TrainingInputs inputs;
  std::optional<Plan> plan = {};  // set where this process leads
  // ReportFacts::made_by; set likewise.
  std::map<std::string, std::string> made_by = {};
  std::int64_t weight_bytes = 0;  // size of the saved weights; set likewise
  std::string why_cpu = {};       // LoadedConfig::why_cpu
  std::string crowded = {};       // a warning of more threads than cores, "" for none
};

// Checks everything that can be known before a run starts, compares it between the job's processes,
// and makes the plan on the leading process. RequestError with all problems. If `texts` allows it,
// writes the tokens of texts that haven't been tokenized. `machine` decides a runtime.bf16_products
// of "auto"; without it this machine is measured, and Launch::cache_folder keeps its rates. Nothing
// else is written. A job whose texts are not tokenized can't be run. Collective over the job's
// processes.
TrainingJob prepare_job(const LoadedConfig&, const Launch&,
                        const TextAccess& texts = {.writes = true},
                        const std::optional<Bf16Machine>& machine = std::nullopt);

// The product rate that MFU relates to, and the file that keeps such rates from run to run.
struct ProductRate {
  JobRate rate = {};      // unknown if it has no machine
  std::string file = {};  // "" for none
};

// Determines the product rate (run/loop/rate_of_job.h). This takes about a second for machines that
// haven't been measured before. Collective over the job's processes.
ProductRate measure_product_rate(const TrainingJob&, const std::string& file = "");

struct JobHooks {
  // run_job() sets `folders` and `facts` itself.
  TrainerHooks trainer = {};
  ProductRate rate = {};              // without it the run reports no MFU
  std::string command = "a program";  // shown where the folders are in use, and in the report
  std::string version = {};           // the program's version, for the report
  // Called when the run has saved and written everything and no rank waits for this process.
  std::function<void()> on_saved = {};
  // Called on world rank 0 at the end. Under MPI the other ranks wait until it returns.
  std::function<void(const TrainingSummary&)> on_summary = {};
};
// Trains: runs all ranks in this process, or under MPI this process's rank. Holds the locks of the
// run's folders until it returns. The summary is complete on world rank 0, with a text sampled from
// the weights where sampling takes no more memory than the run did; `stopped` is set on every rank.
TrainingSummary run_job(const TrainingJob&, const JobHooks&);

// Texts for people: two lines about the job before it runs, and a summary after its end.
// `columns` is the line width, 0 for unlimited.
std::string opening_text(const TrainingJob&);
std::string closing_text(const TrainingJob&, const TrainingSummary&, int columns = 0);
// The contents of both texts as a JSON object (run/startup/summary.h).
nlohmann::ordered_json closing_json(const TrainingJob&, const TrainingSummary&);

}  // namespace trident
