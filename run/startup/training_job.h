// A job from its loaded config to its end: what `trident train` does, for a program to do as well.
//
//   const Launch launch;  // a process by itself
//   TrainingJob job = prepare_job(load({.path = "config.json"}, launch), launch);
//   const TrainingSummary summary = run_job(job, {});
//
// Under mpirun each process does the same, with the Launch that it was given, between
// launch.start->join("train") and finish(); an error of one is told to the others by fail().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "run/launch/devices.h"
#include "run/launch/launch.h"
#include "run/loop/trainer.h"
#include "run/startup/bf16_products.h"
#include "settings/config.h"

namespace trident {

struct TrainingJob {
  Launch launch;
  Devices devices;  // of this process
  TrainingInputs inputs;
  ReportFacts facts = {};                       // where this process leads
  std::int64_t weight_bytes = 0;                // of the saved weights; where this process leads
  std::string why_cpu = {};                     // LoadedConfig::why_cpu
  std::string crowded = {};                     // a warning of more threads than cores, "" for none
  std::string sample = {};                      // a text of its weights, once it has ended
  std::string rates_file = {};                  // that rates of products are kept in
  std::shared_ptr<FoldersToHold> folders = {};  // of the run: held until this goes
};

// Everything that can be known before a run starts, compared between the job's processes, planned
// where this one leads. RequestError with all problems. Writes nothing but, if `texts` says so, the
// tokens of texts that haven't been tokenized; else there is no running with such. Collective over
// the job's processes.
// `machine`: by which runtime.bf16_products "auto" is chosen; else this one, which is measured.
TrainingJob prepare_job(const LoadedConfig&, const Launch&,
                        const TextAccess& texts = {.writes = true},
                        const std::optional<Bf16Machine>& machine = std::nullopt);

// Finds out of what MFU is a share (rate_of_job.h), which takes about a second where nothing is
// known of these machines; without it none is told. `file`: where rates are kept from run to run,
// "" for none. Collective over the job's processes.
void measure_product_rate(TrainingJob&, const std::string& file = "");

struct JobHooks {
  // Its folders are the job's own.
  TrainerHooks trainer = {};
  std::string command = "a program";  // for whoever finds the folders in use, and the report
  std::string version = {};           // of the program, for the report
  // The run has saved and written what there is, and no rank waits for this process.
  std::function<void()> on_saved = {};
  // On world rank 0, before this process ends: other ranks wait for it as long as it lives.
  std::function<void(const TrainingSummary&)> on_summary = {};
};
// Trains: all ranks in this process, or under MPI the one that it is. Once for a job. The summary
// is world rank 0's; `stopped` is everybody's.
TrainingSummary run_job(TrainingJob&, const JobHooks&);

// For people: what is going to run, in two lines; and how it ended, with a text sampled from the
// weights where that takes no more memory than the run did. `columns`: 0 for any number.
std::string opening_text(const TrainingJob&);
std::string closing_text(const TrainingJob&, const TrainingSummary&, int columns = 0);
// Both as an object (summary.h), with what opening_text() says.
nlohmann::ordered_json closing_json(const TrainingJob&, const TrainingSummary&);

}  // namespace trident
