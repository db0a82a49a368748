// The constraints between fields. A check runs only if the fields that it compares are sound, so
// that every line reports a separate problem.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "settings/fields.h"
#include "settings/paths.h"

namespace trident::config_detail {
namespace {

void validate_data(const DataConfig& data, Problems& problems) {
  if (problems.sound("/data/split") && !parse_split(data.split)) {
    problems.add("/data/split", fmt::format("\"{}\" is not one to three sizes, joined by commas, "
                                            "the first above 0; use \"949,50,1\"",
                                            data.split));
  }
  if (problems.sound("/data/split") && !data.split.empty() && !data.validation.empty()) {
    problems.add("/data/split", "is given together with data.validation; leave one of them out");
  }
  if (problems.sound("/data/tokenizer/type")) {
    if (data.tokenizer.type == "byte") {
      if (!data.tokenizer.path.empty()) {
        problems.add("/data/tokenizer/path",
                     "does nothing for type \"byte\"; leave it out, or use type \"file\"");
      }
    } else if (data.tokenizer.path.empty() && problems.sound("/data/tokenizer/path")) {
      problems.add("/data/tokenizer/path",
                   "is missing; type \"file\" needs the path of a tokenizer.json");
    }
  }
}

// Refuses documents within samples where a part of the model or of the schedule takes a sample as
// one.
void validate_documents(const Config& config, Problems& problems) {
  const DataConfig& data = config.data;
  struct Key {
    const char* path;
    bool is_asked, masks_labels;
    const char* value = "true";
  };
  for (const auto& [path, is_asked, masks_labels, value] :
       {Key{"/data/reset_attention_mask", data.reset_attention_mask, false},
        Key{"/data/reset_position_ids", data.reset_position_ids, false},
        Key{"/data/eod_mask_loss", data.eod_mask_loss, true},
        Key{"/data/packing", data.packs_documents(), true, "\"best_fit\""}}) {
    if (!is_asked || !problems.sound(path)) continue;
    if (config.model.mtp_num_layers > 0 && problems.sound(kMtpLayers)) {
      problems.add(path, fmt::format("{} doesn't go with model.mtp_num_layers: a further token may "
                                     "lie in another document; leave one of the two out",
                                     value));
    } else if (masks_labels && problems.sound(kSchedule) && !schedule_constraints(config).flushed) {
      problems.add(path, fmt::format("{} needs the number of labels that count before a "
                                     "micro-batch's backward, but schedule \"{}\" begins "
                                     "micro-batches of later iterations; leave it out, or use a "
                                     "schedule that is flushed, such as \"1f1b\"",
                                     value, config.pipeline.schedule));
    }
  }
  if (data.packing_window != DataConfig().packing_window && !data.packs_documents() &&
      problems.sound({"/data/packing", "/data/packing_window"})) {
    problems.add("/data/packing_window",
                 "does nothing for packing \"concatenate\"; leave it out, or "
                 "use packing \"best_fit\"");
  }
}

void validate_checkpoint(const CheckpointConfig& checkpoint, Problems& problems) {
  const auto needs_save = [&](const char* key, bool asked, const char* what) {
    if (!asked || !checkpoint.save.empty() || !problems.sound({key, "/checkpoint/save"})) return;
    problems.add(key, fmt::format("{} needs checkpoint.save, which is missing", what));
  };
  needs_save("/checkpoint/save_interval", checkpoint.save_interval > 0, "saving checkpoints");
  needs_save("/checkpoint/resume", checkpoint.resume == "must", "\"must\"");
  const LocalCheckpointConfig& local = checkpoint.local;
  needs_save("/checkpoint/local/dir", !local.dir.empty(), "resuming from there");
  if ((local.interval > 0) != !local.dir.empty() &&
      problems.sound({"/checkpoint/local/dir", "/checkpoint/local/interval"})) {
    problems.add(local.dir.empty() ? "/checkpoint/local/dir" : "/checkpoint/local/interval",
                 local.dir.empty()
                     ? "is missing: checkpoint.local.interval asks for checkpoints there"
                     : "needs at least 1 where checkpoint.local.dir is given");
  }
  const bool of_save = checkpoint.load == "auto" || is_iteration(checkpoint.load);
  needs_save("/checkpoint/load", of_save, "one of its own checkpoints");
  const auto of_another = [&](const char* key, bool asked) {
    if (!asked || !problems.sound({key, "/checkpoint/load"})) return;
    if (!checkpoint.load.empty() && !of_save) return;
    problems.add(key, fmt::format("applies to the path in checkpoint.load, which is {}",
                                  of_save ? "one of the run's own checkpoints" : "missing"));
  };
  of_another("/checkpoint/exclude_from_loading", !checkpoint.exclude_from_loading.empty());
  of_another("/checkpoint/key_mapping", !checkpoint.key_mapping.empty());
  of_another("/checkpoint/grow_vocabulary", checkpoint.grow_vocabulary);
  if (of_save && checkpoint.resume == "never" &&
      problems.sound({"/checkpoint/load", "/checkpoint/resume"})) {
    problems.add(
        "/checkpoint/load",
        fmt::format(
            "\"{}\" resumes from a checkpoint, but checkpoint.resume is \"never\"; leave one out",
            checkpoint.load));
  }
}

// Each key has a range of its own. These limits apply to products of sizes: counts of elements,
// bytes and tokens have to fit in 64 bits, and a rank's number in 32.
void validate_sizes(const Config& config, Problems& problems) {
  constexpr double kElements = 1e15;
  constexpr double kCount = std::numeric_limits<std::int32_t>::max();
  const auto at_most = [&](const char* path, double size, double limit, std::string_view what) {
    if (size <= limit) return;
    problems.add(path,
                 fmt::format("makes {:.3g} {}; at most {:.3g} are possible", size, what, limit));
  };
  const ModelConfig& model = config.model;
  const auto of = [](std::int64_t size) { return static_cast<double>(size); };
  if (axes_sound(config.parallel, problems)) {
    double ranks = 1;
    for (const MeshAxis& axis : config.parallel.axes()) ranks *= axis.folded ? 1 : of(axis.size);
    at_most(kData, ranks, kCount, "ranks");
  }
  constexpr auto kVocabulary = "/model/vocab_size";
  constexpr auto kLength = "/data/sequence_length";
  constexpr auto kDivisor = "/model/make_vocab_size_divisible_by";
  if (!problems.sound({kHidden, kHeads, kFfn, kLayers, kVocabulary, kTensor, kDivisor})) return;
  const double vocabulary =
      of(model.vocab_size) +
      of(model.make_vocab_size_divisible_by) * of(config.parallel.tensor_model_parallel_size);
  const double hidden = of(model.hidden_size), ffn = of(model.ffn_hidden_size);
  const MoeConfig& moe = model.moe;
  if (!problems.sound({kExperts, kExpertFfn, kTopk, kMtpLayers})) return;
  const double experts =
      of(moe.num_experts) * of(moe.ffn_hidden_size) + of(moe.shared_expert_intermediate_size);
  const double layers = of(model.num_layers) + of(model.mtp_num_layers);
  at_most(kHidden, hidden * (layers * (4 * hidden + 3 * ffn) + 2 * vocabulary), kElements,
          "parameters");
  if (moe.has_experts()) {
    at_most(kExperts, hidden * layers * 3 * experts, kElements, "parameters of experts");
  }
  if (!problems.sound({kLength, kMicro, "/batch/gradient_accumulation_steps",
                       "/batch/global_batch_size", "/training/train_iters"})) {
    return;
  }
  const double length = of(config.data.sequence_length);
  const double tokens = of(config.batch.micro_batch_size) * length;
  at_most(kMicro, tokens * of(config.batch.gradient_accumulation_steps), kCount,
          "tokens of an iteration on one rank");
  at_most(
      kMicro,
      tokens * std::max({vocabulary, 2 * ffn, of(model.num_attention_heads) * length,
                         of(moe.num_experts), of(moe.router_topk) * 2 * of(moe.ffn_hidden_size)}),
      kElements, "elements of an activation");
  if (moe.has_experts()) {
    at_most(kTopk, tokens * of(moe.router_topk), kCount,
            "pairs of a token and an expert in a micro-batch");
  }
  at_most("/training/train_iters",
          of(config.training.train_iters) * of(config.batch.global_batch_size) * length, 4e18,
          "tokens of the run");
}

// Compares the paths' text. run/folders/run_folder.h resolves links when it opens the folders.
void validate_folders(const CheckpointConfig& checkpoint, const LoggingConfig& logging,
                      Problems& problems) {
  constexpr auto kSave = "/checkpoint/save";
  if (!problems.sound({"/logging/dir", kSave}) || checkpoint.save.empty()) return;
  const auto normal = [](const std::string& directory) {
    return (std::filesystem::path(directory) / "").lexically_normal();
  };
  if (normal(logging.dir) != normal(checkpoint.save)) return;
  problems.add(
      kSave, fmt::format(
                 "\"{}\" is logging.dir, too, and each has a config.json of its "
                 "own; use another directory, such as \"{}\"",
                 checkpoint.save,
                 (std::filesystem::path(checkpoint.save) / "weights").lexically_normal().string()));
}

// The largest number of cosines that fit in `iterations` if each is `times` as long as the one
// before and the first has at least two iterations. At least 1.
std::int64_t most_cycles(std::int64_t iterations, double times) {
  if (times == 1) return std::max<std::int64_t>(1, iterations / 2);
  std::int64_t cycles = 0;
  for (double first = 2, sum = 0;
       sum + first <= static_cast<double>(iterations) && cycles < 1'000'000; ++cycles) {
    sum += first;
    first *= times;
  }
  return std::max<std::int64_t>(1, cycles);
}

}  // namespace

void validate_iterations(const Config& config, Problems& problems) {
  const LrSchedulerConfig& scheduler = config.scheduler;
  constexpr auto kWarmup = "/scheduler/warmup_iters";
  constexpr auto kDecay = "/scheduler/decay_iters";
  if (problems.sound({kWarmup, "/scheduler/warmup_ratio"}) && scheduler.warmup_iters != 0 &&
      scheduler.warmup_ratio != 0) {
    problems.add(kWarmup, "is given together with warmup_ratio; leave one of them out");
  }
  const std::int64_t iterations = config.training.train_iters;
  if (problems.sound({kWarmup, kDecay, "/scheduler/type", "/training/train_iters"}) &&
      scheduler.decay_iters != 0 && scheduler.type != "constant" && scheduler.type != "piecewise" &&
      scheduler.warmup_iters >= scheduler.decay_iters) {
    const bool of_run = scheduler.decay_iters == iterations;
    problems.add(
        kWarmup,
        fmt::format("{0} leaves nothing of {1} ({2}) to type \"{3}\"; set scheduler.warmup_iters "
                    "to at most {4}, {1} to more than {0}, or scheduler.type to \"constant\"",
                    scheduler.warmup_iters,
                    of_run ? "training.train_iters" : "scheduler.decay_iters",
                    scheduler.decay_iters, scheduler.type, scheduler.decay_iters - 1));
  }
  constexpr auto kWsd = "/scheduler/wsd_decay_iters";
  const bool sound = problems.sound({kWarmup, kDecay, kWsd, "/scheduler/type"});
  const std::int64_t left = scheduler.decay_iters - scheduler.warmup_iters;
  if (sound && scheduler.type == "wsd" && left > 0 && scheduler.wsd_decay_iters > left) {
    problems.add(kWsd, fmt::format("{} is more than decay_iters ({}) leave after warmup_iters "
                                   "({}); use at most {}",
                                   scheduler.wsd_decay_iters, scheduler.decay_iters,
                                   scheduler.warmup_iters, left));
  }
  constexpr auto kCycles = "/scheduler/num_cycles";
  if (sound && problems.sound({kCycles, "/scheduler/cycle_mult"}) &&
      scheduler.type == "cosine_with_restarts" && left > 0) {
    const std::int64_t most = most_cycles(left, scheduler.cycle_mult);
    if (scheduler.num_cycles > most) {
      problems.add(kCycles,
                   fmt::format("{} cosines, each {} times as long as the one before, leave "
                               "the first less than two of the {} iterations from "
                               "warmup_iters to decay_iters; use at most {}",
                               scheduler.num_cycles, scheduler.cycle_mult, left, most));
    }
  }
  const auto within = [&](const char* path, const std::vector<std::int64_t>& list) {
    for (const std::int64_t iteration : list) {
      if (iterations == 0 || iteration <= iterations || !problems.sound(path)) continue;
      problems.add(path, fmt::format("{} is beyond the last iteration, training.train_iters ({})",
                                     iteration, iterations));
    }
  };
  within("/logging/dump_gradients_at", config.logging.dump_gradients_at);
  within("/logging/trace_at", config.logging.trace_at);
}

void validate(const Config& config, Problems& problems) {
  validate_model(config, problems);
  validate_experts(config, problems);
  validate_tensor_parallel(config, problems);
  validate_context_parallel(config, problems);
  validate_pipeline(config, problems);
  validate_layout(config, problems);
  validate_optimizer(config, problems);
  validate_precision(config, problems);
  validate_documents(config, problems);
  validate_data(config.data, problems);
  validate_checkpoint(config.checkpoint, problems);
  validate_sizes(config, problems);
  validate_folders(config.checkpoint, config.logging, problems);
  if (problems.sound({"/training/train_iters", "/training/train_epochs"}) &&
      config.training.train_iters != 0 && config.training.train_epochs != 0) {
    problems.add("/training/train_epochs",
                 "is given together with train_iters; leave one of them out");
  }
  validate_iterations(config, problems);
  if (problems.sound(kModel) && model_constraints(config).check) {
    model_constraints(config).check(config, problems);
  }
}

}  // namespace trident::config_detail
