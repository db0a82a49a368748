#include "run/startup/training_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process/process.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "engine/setup/text_setup.h"
#include "planner/plan/fit.h"
#include "planner/plan/plan.h"
#include "report/run_files.h"
#include "run/folders/run_folder.h"
#include "run/generation/generate.h"
#include "run/loop/rate_of_job.h"
#include "run/startup/job_checks.h"
#include "run/startup/summary.h"

namespace trident {
namespace {

// Generates a text from the saved weights. Returns "" where the full model on one rank would take
// more memory than the run did.
std::string sample_text(const Config& config, const Plan& plan) {
  if (config.checkpoint.save.empty() || config.data.tokenizer.type != "byte") return "";
  if (!has_byte_tokenizer(config.checkpoint.save)) return "";  // the run read token files
  std::int64_t peak = 0;
  for (const PlanRank& rank : plan.ranks) peak = std::max(peak, rank.peak_bytes);
  if (saved_bytes(config.precision, plan.parameters) > peak) return "";
  std::string text;
  try {
    const Devices devices(config);
    run_local(1, {}, [&](Transport& transport) {
      Context context(
          devices.of(0), 1,
          {.widen_bf16 =
               kernel_options(config.training, config.precision, config.runtime).widen_bf16});
      const std::string prompt = "And ";
      const auto texts =
          generate(context, transport, built_in_architectures(), config.checkpoint.save,
                   std::vector<std::int32_t>(prompt.begin(), prompt.end()), {.tokens = 300});
      const std::vector<std::int32_t>& tokens = texts.front();
      for (const std::int32_t token : tokens) {
        if (token > 255) continue;
        const auto c = static_cast<char>(token);
        // Partly trained weights generate control bytes, which would disturb a terminal.
        text += (c >= ' ' && c < 127) || c == '\n' ? c : '?';
      }
    });
  } catch (const std::exception& error) {
    return std::string("none: ") + error.what();  // the run itself has succeeded
  }
  return text;
}

// The rate that MFU relates to.
std::string rate_text(const PrecisionConfig& precision, const Devices& devices) {
  if (devices.gpu().empty()) return "of this machine's best known product rate";
  return devices.peak(precision) ? "of the peak of " + devices.gpu()
                                 : "of the best known product rate of " + devices.gpu();
}

// The cores or GPUs that `world` ranks share; "" where each has its own.
std::string sharing_text(std::int64_t world, const RuntimeConfig& runtime, const Launch& launch,
                         const Devices& devices) {
  if (devices.gpu().empty()) {
    const std::int64_t here = launch.mpi ? launch.local_ranks : world;
    const std::int64_t threads = here * runtime.threads_per_rank;
    if (threads <= launch.cores) return "";
    return fmt::format("{} share {}: by the clock, waiting for a core looks like work",
                       counted(threads, "rank thread"), counted(launch.cores, "core"));
  }
  const std::int64_t ranks = ranks_on_gpus(launch, world, devices.count());
  if (ranks <= devices.count()) return "";
  return fmt::format("{} share {}: waiting for the others' kernels looks like work",
                     counted(ranks, "rank"), counted(devices.count(), "GPU"));
}

// The same for the closing summary.
Shared shared_of(const TrainingJob& job) {
  const Config& config = job.inputs.config;
  return {rate_text(config.precision, job.devices),
          sharing_text(config.world_size(), config.runtime, job.launch, job.devices)};
}

// Advice on which settings would fit, after a device has run out of memory.
std::string what_fits(const Config& config, const Architecture& architecture, const Launch& launch,
                      const Devices& devices) {
  const auto memory = devices.memory(ranks_on_gpus(launch, config.world_size(), devices.count()));
  return memory ? "\n" + fit_text(fit_memory(config, architecture, *memory / 10 * 9)) : "";
}

// Adds to the report, which the run has written: a sample, and the product rate if it was measured
// again. It is measured again where a step was faster than every rate known before.
void complete_report(const TrainingJob& job, const JobHooks& hooks, TrainingSummary& summary) {
  const double known = hooks.rate.rate.total();
  const bool again = known > 0 && summary.rate.total() > known;
  if (again && job.launch.mpi) keep_best_rates(hooks.rate.file, summary.rate.best);
  if (again && !job.launch.mpi) {
    measure_again(summary.rate, job.inputs.config, job.launch, job.devices, hooks.rate.file);
  }
  if (!summary.stopped && !summary.history.empty()) {
    summary.sample = sample_text(job.inputs.config, *job.plan);
  }
  if (summary.history.empty() || (summary.sample.empty() && !again)) return;
  try {
    add_to_report(job.inputs.config.logging.dir, summary.sample, summary.rate.best);
  } catch (const std::exception& error) {
    const auto& report = hooks.trainer.on_message;
    if (report) report(std::string("warning: the report: ") + error.what());
  }
}

ReportFacts report_facts(const TrainingJob& job, const JobHooks& hooks) {
  ReportFacts facts{.plan = job.plan, .rate = hooks.rate.rate, .made_by = job.made_by};
  facts.start = {{"command", hooks.command},
                 {"version", hooks.version},
                 {"host", host_name()},
                 {"machine", processor_name()},
                 {"threads", fmt::format("{} a rank", job.inputs.config.runtime.threads_per_rank)}};
  facts.start.insert(facts.start.end(), job.made_by.begin(), job.made_by.end());
  return facts;
}

// Trains all ranks in this process.
TrainingSummary train_here(const TrainingJob& job, const TrainerHooks& hooks) {
  try {
    return train_local(job.inputs, job.devices, hooks);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + what_fits(job.inputs.config, *job.inputs.architecture,
                                               job.launch, job.devices));
  }
}

}  // namespace

TrainingJob prepare_job(const LoadedConfig& loaded, const Launch& launch, const TextAccess& texts,
                        const std::optional<Bf16Machine>& machine) {
  if (loaded.parallel_is_auto) {
    throw RequestError("config: /parallel: \"auto\" has not been chosen (ConfigRequest::layouts)");
  }
  std::optional<Devices> devices;
  TrainingInputs inputs = checked_inputs(loaded, launch, texts, devices, machine);
  TrainingJob job{launch, std::move(*devices), std::move(inputs)};
  const Config& config = job.inputs.config;
  job.why_cpu = loaded.why_cpu;
  if (launch.leads) {
    job.made_by = made_with(job.devices, launch);
    if (config.runtime.bf16_products != "auto") {
      job.made_by["bf16 products"] = config.runtime.bf16_products;
    }
    job.plan = make_plan(config, *job.inputs.architecture, job.inputs.schedule);
    job.weight_bytes = saved_bytes(config.precision, job.plan->parameters);
    check_output(config, job.weight_bytes, run_of(job.inputs.start));
  }
  compare_ranks(job.inputs, job.devices, launch);
  job.crowded = crowded_text(config, launch, job.devices);
  launch.start->done();
  return job;
}

ProductRate measure_product_rate(const TrainingJob& job, const std::string& file) {
  return {rate_of_job(job.inputs.config, job.launch, job.devices, file), file};
}

TrainingSummary run_job(const TrainingJob& job, const JobHooks& hooks) {
  TrainerHooks trainer = hooks.trainer;
  trainer.folders = std::make_shared<FoldersToHold>(
      FoldersToHold{.weight_bytes = job.weight_bytes, .command = hooks.command});
  trainer.facts = report_facts(job, hooks);
  TrainingSummary summary;
  const auto saved = [&] {
    if (hooks.on_saved) hooks.on_saved();
  };
  const auto conclude = [&] {
    if (job.launch.leads) complete_report(job, hooks, summary);
    if (job.launch.leads && hooks.on_summary) hooks.on_summary(summary);
  };
  if (const TransportKind& kind = transport_of(job.inputs.config);
      job.launch.mpi && kind.run_process != nullptr) {
    kind.run_process(transport_options(job.inputs.config), [&](Transport& transport) {
      summary = train_rank(job.inputs, transport, job.devices.of(job.launch.local_rank), trainer);
      conclude();
    });
    saved();
  } else {
    summary = train_here(job, trainer);
    saved();
    conclude();
  }
  return summary;
}

namespace {

// The experts and the loss that balances them; "" for a model without.
std::string experts_text(const MoeConfig& moe, const std::string& load) {
  if (!moe.has_experts()) return "";
  const bool balances = moe.router_load_balancing_type != "none" && moe.aux_loss_coeff > 0;
  const bool biases = moe.router_enable_expert_bias && moe.router_bias_update_rate > 0;
  std::vector<std::string> by;
  if (balances) {
    by.push_back(
        fmt::format("{} with factor {}", moe.router_load_balancing_type, moe.aux_loss_coeff));
  }
  if (biases) by.push_back(fmt::format("biases with rate {}", moe.router_bias_update_rate));
  std::string balance = by.empty() ? "not balanced by a loss"
                                   : fmt::format("balanced by {}", fmt::join(by, " and by "));
  if (by.empty() && !load.empty() && load != "auto" && !is_iteration(load)) {
    balance += ", as usual for a run that begins with weights; model.moe may ask for one";
  }
  return fmt::format("experts: {} in {}, {} a token; {}\n", moe.num_experts,
                     counted(std::ssize(moe.layers()), "layer"), moe.router_topk, balance);
}

}  // namespace

std::string opening_text(const TrainingJob& job) {
  const Config& config = job.inputs.config;
  return fmt::format(
      "{}: {} ({}), {}, transport {}, {} a rank\n"
      "{}device: {}{}\n",
      config.model.architecture, counted(config.world_size(), "rank"),
      titles_of(config.parallel.axes()), schedule_name(config.pipeline), config.runtime.transport,
      counted(config.runtime.threads_per_rank, "thread"),
      experts_text(config.model.moe, config.checkpoint.load), job.devices.text(),
      job.why_cpu.empty() ? "" : " (" + job.why_cpu + ")");
}

nlohmann::ordered_json closing_json(const TrainingJob& job, const TrainingSummary& summary) {
  const Config& config = job.inputs.config;
  nlohmann::ordered_json result = closing_json(config, *job.plan, summary, shared_of(job));
  result["logging_dir"] = config.logging.dir;
  result["architecture"] = config.model.architecture;
  result["parallel"] = titles_of(config.parallel.axes());
  result["transport"] = config.runtime.transport;
  result["threads_per_rank"] = config.runtime.threads_per_rank;
  result["device"] = job.devices.text();
  if (!job.why_cpu.empty()) result["why_cpu"] = job.why_cpu;
  return result;
}

std::string closing_text(const TrainingJob& job, const TrainingSummary& summary, int columns) {
  const Config& config = job.inputs.config;
  return closing_text(config.pipeline, *job.plan, summary, shared_of(job), columns);
}

}  // namespace trident
