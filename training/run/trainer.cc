#include "training/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/file.h"
#include "core/request_problems.h"
#include "training/engine/evaluator.h"
#include "training/engine/finite_weights.h"
#include "training/engine/monitor.h"
#include "training/engine/rank_model.h"
#include "training/engine/replicas.h"
#include "training/engine/stepper.h"
#include "training/hugging_face/hugging_face.h"
#include "training/optimizer/learning_rate.h"
#include "training/plan/plan.h"
#include "training/report/log_writer.h"
#include "training/report/product_rate.h"
#include "training/report/run_report.h"
#include "training/run/agreement.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"
#include "training/setup/model_costs.h"

namespace trident {
namespace {

DataSpec data_spec(const Config& config, const std::string& written) {
  DataSpec spec{.split = config.data.split_fractions(),
                .sequence_length = config.data.sequence_length,
                .vocab_size = config.model.vocab_size,
                .vocab_size_given = is_written(written, "/model/vocab_size"),
                .byte_tokenizer = config.data.tokenizer.type == "byte",
                .shuffle = config.data.shuffle,
                .seed = static_cast<std::uint64_t>(config.data.seed)};
  const auto sources = [](const std::vector<DataSource>& from) {
    std::vector<SourceSpec> to;
    for (const DataSource& source : from) to.push_back({source.path, source.weight});
    return to;
  };
  spec.train = sources(config.data.train);
  for (const ValidationSet& set : config.data.validation) {
    spec.validation.push_back({set.name, sources(set.sources)});
  }
  return spec;
}

bool saves_tokenizer(const Config& config) {
  return !config.data.tokenizer.path.empty() && !config.checkpoint.save.empty();
}

// One rank's run, step by step.
class TrainingRun {
 public:
  TrainingRun(const TrainingInputs& inputs, Transport& transport, Context& context,
              const TrainerHooks& hooks)
      : inputs_(inputs),
        config_(inputs.config),
        hooks_(hooks),
        context_(context),
        world_(transport.world()),
        files_(world_.patient("files")),
        topology_(topology_of(config_, inputs.schedule, transport)),
        model_(context_, config_, *inputs.architecture, inputs.schedule, topology_),
        stepper_(model_, inputs.lists),
        evaluator_(model_, inputs.lists),
        monitor_(stepper_, world_.duplicate("monitor")),
        train_(inputs.datasets.train, batch_shape(config_, topology_)),
        flops_(flops_per_step(config_, *inputs.architecture)),
        extras_(inputs.extras) {
    for (const auto& [name, dataset] : inputs.datasets.validation) {
      validation_.emplace_back(name, BatchSampler(dataset, batch_shape(config_, topology_)));
    }
  }

  TrainingSummary run();

 private:
  // One that has run; what all ranks found of it may come later.
  struct Iteration {
    std::int64_t k = 0;
    double learning_rate = 0, seconds = 0;
    std::int64_t weight_version = 0;
  };

  bool leads() const { return world_.rank() == 0; }
  // The second iteration is: the first one still makes its buffers.
  bool is_drawn(std::int64_t k) const {
    return config_.logging.trace &&
           k == std::min(inputs_.first_iteration + 1, config_.training.train_iters - 1);
  }
  void check_same_config();
  void message(const std::string& text) const {
    if (!leads() || !hooks_.on_message) return;
    const FileWork printing = world_.file_work();
    hooks_.on_message(text);
  }
  HostMicroBatch batch(BatchSampler& sampler, std::int64_t iteration, std::int64_t index);
  std::vector<HostMicroBatch> batches(BatchSampler& sampler, std::int64_t iteration);
  std::vector<std::pair<std::string, double>> evaluate();
  void look_at_skipped(std::int64_t k, const StepResult& step);
  void begin();
  void restore();
  void train();
  bool iteration(std::int64_t k);
  bool report(const Iteration& iteration, const StepResult& step, bool evaluates);
  void dump_gradients(std::int64_t k);
  void save();
  void write_report();

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  Context& context_;
  ProcessGroup world_;
  ProcessGroup files_;  // patient: whoever waits for files waits here
  Topology topology_;
  RankModel model_;
  Stepper stepper_;
  Evaluator evaluator_;
  Monitor monitor_;
  BatchSampler train_;
  std::vector<std::pair<std::string, BatchSampler>> validation_;
  double flops_;                    // of a step
  std::unique_ptr<LogWriter> log_;  // on rank 0
  HuggingFaceExtras extras_;
  Iteration last_;
  std::int64_t next_ = 0;     // iteration, from 0: where the data goes on, too
  std::int64_t skipped_ = 0;  // steps in a row, but for those that lower a loss scale
  std::string failure_;       // why the run ends with an error; the same on all ranks
  TrainingSummary summary_;
};

// Processes load their configs by themselves. `trident train` has compared more before (app/),
// which other programs need not do.
void TrainingRun::check_same_config() {
  const std::vector<Fingerprint> keys = config_fingerprints(config_);
  std::vector<std::int64_t> mine;
  for (const Fingerprint& key : keys) {
    mine.push_back(static_cast<std::int64_t>(content_hash(std::as_bytes(std::span(key.value)))));
  }
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor own = context_.from_host<std::int64_t>({count}, mine, Category::communication);
  const Tensor all = context_.empty({count * world_.size()}, DType::i64, Category::communication);
  world_.all_gather(context_, own, all);
  const auto values = context_.to_host<std::int64_t>(all);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t key = i % keys.size();
    if (values[i] == values[key]) continue;
    throw RequestError(fmt::format("{}: rank {} has another value than rank 0 (rank {} has {}); {}",
                                   keys[key].name, i / keys.size(), world_.rank(), keys[key].value,
                                   keys[key].advice));
  }
}

HostMicroBatch TrainingRun::batch(BatchSampler& sampler, std::int64_t iteration,
                                  std::int64_t index) {
  HostMicroBatch batch;
  const FileWork reading = world_.file_work();
  try {
    sampler.fill(iteration, index, batch);
  } catch (const RequestError& error) {
    throw Error(error.what());  // a bad token is found when it is read: the run has started
  }
  return batch;
}

std::vector<HostMicroBatch> TrainingRun::batches(BatchSampler& sampler, std::int64_t iteration) {
  std::vector<HostMicroBatch> list;
  const FileWork reading = world_.file_work();
  for (std::int64_t i = 0; i < sampler.micro_batches(); ++i) {
    list.push_back(batch(sampler, iteration, i));
  }
  return list;
}

// Breaks off, with summary_.stopped, when a rank is asked to stop.
std::vector<std::pair<std::string, double>> TrainingRun::evaluate() {
  std::vector<std::pair<std::string, double>> losses;
  for (auto& [name, sampler] : validation_) {
    double total = 0;
    for (std::int64_t i = 0; i < config_.training.eval_iters; ++i) {
      const auto loss = evaluator_.mean_loss(batches(sampler, i), hooks_.stop);
      if (!loss) {
        summary_.stopped = true;
        return {};
      }
      total += *loss;
    }
    losses.emplace_back(name, total / static_cast<double>(config_.training.eval_iters));
  }
  return losses;
}

// Of a step whose loss or gradients are not finite: says so, or sets failure_.
void TrainingRun::look_at_skipped(std::int64_t k, const StepResult& step) {
  const std::int64_t first = k * config_.batch.global_batch_size;
  const std::string what = fmt::format(
      "iteration {}: loss {}, gradient norm {}: not finite; samples {} to {}", k + 1,
      std::abs(step.loss), step.grad_norm, first, first + config_.batch.global_batch_size - 1);
  if (stepper_.updates_unchecked()) {
    failure_ = what + "; " + stepper_.schedule().kind + " has updated the weights meanwhile";
    return;
  }
  if (step.rescales) {
    message(what + fmt::format("; step skipped, at loss scale {}", step.loss_scale));
    return;
  }
  if (config_.training.on_non_finite == "stop") {
    failure_ = what +
               "; no weight was changed by this iteration "
               "(training.on_non_finite: \"skip\" leaves it out and goes on)";
    return;
  }
  if (++skipped_ >= config_.training.max_skipped_steps) {
    failure_ = what + fmt::format(
                          "; {} step(s) in a row were skipped, as many as "
                          "training.max_skipped_steps allows",
                          skipped_);
    return;
  }
  message(what +
          (step.rolled_back ? "; step skipped: its update was rolled back" : "; step skipped"));
}

void TrainingRun::dump_gradients(std::int64_t k) {
  const std::string path = fmt::format("{}/gradients-{}.safetensors", config_.logging.dir, k + 1);
  const std::string failure = save_gradients(stepper_, files_, path);
  if (!leads()) return;
  if (failure.empty()) {
    summary_.written.push_back(path);
  } else {
    log_->failed("gradients", failure);
  }
}

// Returns false when the run shall stop.
bool TrainingRun::iteration(std::int64_t k) {
  const auto& dumps = config_.logging.dump_gradients_at;
  const bool dump = std::find(dumps.begin(), dumps.end(), k + 1) != dumps.end();
  std::vector<HostMicroBatch> micro_batches;
  {
    const FileWork reading = world_.file_work();  // all of it: parts may each be short
    micro_batches = batches(train_, k);
    const auto own = static_cast<std::int64_t>(micro_batches.size());
    for (std::int64_t i = 0; i < stepper_.look_ahead(); ++i) {
      micro_batches.push_back(batch(train_, k + 1 + i / own, i % own));
    }
  }
  const std::int64_t interval = config_.training.eval_interval;
  const bool evaluates =
      k + 1 == config_.training.train_iters || (interval > 0 && (k + 1) % interval == 0);
  monitor_.begin(is_drawn(k));
  stepper_.keep_gradients(dump);
  const double rate = learning_rate(config_.scheduler, config_.optimizer.params.lr, k);
  const ClockReading begin = read_clock();
  Advance steps = stepper_.advance(
      micro_batches, {.learning_rate = rate, .stop = hooks_.stop, .close = evaluates});
  const double seconds = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  const bool goes_on = !steps.before || report(last_, *steps.before, false);
  if (!steps.ran) return false;
  if (!goes_on && !steps.own) steps.own = stepper_.settle();
  if (!failure_.empty()) return false;

  last_ = {k, rate, seconds, stepper_.weight_version()};
  if (dump) dump_gradients(k);
  monitor_.end();
  return !steps.own || report(last_, *steps.own, evaluates);
}

// Returns false when the run shall stop.
bool TrainingRun::report(const Iteration& iteration, const StepResult& step, bool evaluates) {
  const std::int64_t k = iteration.k;
  if (step.applied) {
    skipped_ = 0;
  } else {
    look_at_skipped(k, step);
  }
  if (step.stop) summary_.stopped = true;
  const bool draw = is_drawn(k);
  const StepFigures figures = monitor_.collect();
  IterationMetrics metrics;
  if (evaluates && !summary_.stopped && failure_.empty()) metrics.validation_loss = evaluate();
  const bool goes_on = !summary_.stopped && failure_.empty();
  if (!leads()) return goes_on;

  const double tokens = static_cast<double>(config_.batch.global_batch_size) *
                        static_cast<double>(config_.data.sequence_length);
  metrics.iteration = k + 1;
  metrics.loss = step.loss;
  metrics.grad_norm = step.grad_norm;
  metrics.learning_rate = iteration.learning_rate;
  metrics.consumed_tokens = static_cast<std::int64_t>(tokens) * (k + 1);
  metrics.iteration_time_ms = iteration.seconds * 1e3;
  metrics.tokens_per_second = tokens / iteration.seconds;
  metrics.tflops = flops_ / iteration.seconds * 1e-12;
  metrics.mfu = inputs_.product_rate > 0 ? metrics.tflops * 1e12 / inputs_.product_rate : 0;
  metrics.bubble_ratio = figures.bubble_ratio;
  metrics.bubble_ratio_wall = figures.bubble_ratio_wall;
  metrics.bubble_predicted = figures.bubble_predicted;
  metrics.rank_bubble_ratio = figures.rank_bubble_ratio;
  metrics.bytes_sent = figures.bytes_sent;
  metrics.peak_memory = figures.peak_memory;
  metrics.loss_scale = step.loss_scale;
  metrics.skipped = !step.applied;
  if (stepper_.schedule().asynchronous()) metrics.weight_version = iteration.weight_version;
  if (hooks_.on_iteration) {
    const FileWork printing = world_.file_work();  // to a terminal that is held, say
    hooks_.on_iteration(metrics);
  }
  log_->write(metrics);
  summary_.history.push_back(std::move(metrics));
  if (draw) {
    const std::string what = fmt::format("{}, iteration {}: ", schedule_name(config_), k + 1);
    summary_.predicted = figures.predicted;
    summary_.predicted.title =
        fmt::format("{}predicted bubble {:.1f}%, by the schedule and the mean times of F, B and W",
                    what, 100 * figures.bubble_predicted);
    summary_.timeline = figures.timeline;
    summary_.timeline.title =
        fmt::format("{}measured bubble {:.1f}% by CPU time, {:.1f}% by the clock", what,
                    100 * figures.bubble_ratio, 100 * figures.bubble_ratio_wall);
    log_->write_timeline(summary_.predicted, summary_.timeline);
  }
  for (const std::string& text : log_->take_messages()) message(text);
  return goes_on;
}

void TrainingRun::restore() {
  State state = stepper_.state();
  state.numbers.push_back({"iteration", &next_});
  state.numbers.push_back({"skipped", &skipped_});
  inputs_.restore(context_, state);
  if (next_ != inputs_.first_iteration) {
    throw Error(fmt::format("the state is of iteration {}, the run begins at {}", next_,
                            inputs_.first_iteration));
  }
  stepper_.restored();
}

// Weights and log files. Sets summary_.stopped where a rank is asked to stop before it has trained.
void TrainingRun::begin() {
  check_same_config();
  for (const std::string& warning : topology_.warnings) message("warning: " + warning);
  if (saves_tokenizer(config_) && !inputs_.extras.files.contains("tokenizer.json")) {
    message("warning: config: /data/tokenizer/path: there is no file \"" +
            config_.data.tokenizer.path + "\"; the saved weights go without a tokenizer");
  }
  if (inputs_.restore) {
    restore();
  } else if (config_.checkpoint.load.empty()) {
    model_.initialise();
  } else {
    load_hugging_face(model_, config_.checkpoint.load, hooks_.stop);
  }
  // Disks may be slow: ranks wait for each other as long as it takes.
  const std::int64_t stop = hooks_.stop != nullptr && hooks_.stop->load() ? 1 : 0;
  const Tensor stops =
      context_.from_host<std::int64_t>({1}, std::span(&stop, 1), Category::workspace);
  files_.barrier(context_);
  world_.all_reduce(context_, stops);
  summary_.stopped = context_.to_host<std::int64_t>(stops).front() != 0;
  if (summary_.stopped) return message("stopped before the first iteration: nothing is saved");
  require_equal_replicas(model_);
  if (leads() && hooks_.on_begin) extras_.run_id = hooks_.on_begin();
  if (leads()) log_ = std::make_unique<LogWriter>(config_, inputs_.written);
  files_.barrier(context_);
  context_.ledger().reset_peaks();
}

void TrainingRun::train() {
  for (; next_ < config_.training.train_iters; ++next_) {
    if (!iteration(next_)) break;
  }
}

void TrainingRun::save() {
  const std::string& directory = config_.checkpoint.save;
  if (directory.empty()) return;
  if (summary_.stopped) message("stopping, saving the weights to " + directory);
  if (!weights_are_finite(model_)) {
    failure_ = "the weights are not finite: they are not saved, " + directory + " stays as it was";
    return;
  }
  if (leads() && hooks_.still_held) hooks_.still_held();
  try {
    save_hugging_face(model_, files_, directory, extras_);
  } catch (const RequestError& error) {
    throw Error(error.what());  // the run has started, whatever it finds now
  }
  if (leads()) summary_.written.push_back(directory);
}

void TrainingRun::write_report() {
  if (hooks_.still_held) hooks_.still_held();
  std::vector<Timeline> timelines;
  if (!summary_.timeline.events.empty()) timelines = {summary_.predicted, summary_.timeline};
  const Plan plan =
      inputs_.plan ? *inputs_.plan : make_plan(config_, *inputs_.architecture, inputs_.schedule);
  log_->write_report(run_report(config_, plan, summary_.history, timelines));
  const auto files = log_->finish();
  summary_.written.insert(summary_.written.begin(), files.begin(), files.end());
  for (const std::string& text : log_->take_messages()) message(text);
}

TrainingSummary TrainingRun::run() {
  begin();
  if (summary_.stopped) return std::move(summary_);
  train();
  std::exception_ptr error;
  try {
    if (failure_.empty()) save();
  } catch (...) {
    error = std::current_exception();  // after the report of what has run
  }
  if (leads()) write_report();
  if (error) std::rethrow_exception(error);
  files_.barrier(context_);
  if (!failure_.empty()) throw Error(failure_);
  return std::move(summary_);
}

// A run that may resume must not begin anew beside checkpoints, which nothing here reads yet.
void refuse_checkpoints(const Config& config) {
  namespace fs = std::filesystem;
  if (config.checkpoint.resume == "never" || config.checkpoint.save.empty()) return;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(config.checkpoint.save, none)) {
    const std::string name = entry.path().filename().string();
    if (name != "latest" && !name.starts_with("iteration-")) continue;
    throw RequestError(
        fmt::format("config: /checkpoint/resume: \"{}\" would go on from the checkpoint {}, but "
                    "resuming is not "
                    "available yet; use \"never\", which begins anew, or another checkpoint.save",
                    config.checkpoint.resume, entry.path().string()));
  }
}

}  // namespace

TrainingInputs prepare_training(const LoadedConfig& loaded) {
  TrainingInputs inputs{.config = loaded.config,
                        .written = loaded.written,
                        .architecture = architecture_of(loaded.config)};
  Config& config = inputs.config;
  RequestProblems problems;
  problems.collect([&] { inputs.schedule = schedule_of(config); });
  if (!config.checkpoint.load.empty()) {
    problems.collect([&] {
      check_hugging_face(config.checkpoint.load, config, *inputs.architecture);
      inputs.extras = read_extras(config.checkpoint.load, *inputs.architecture, false);
    });
  }
  std::error_code unreadable;  // then opening it names the reason
  const std::string& tokenizer = config.data.tokenizer.path;
  if (saves_tokenizer(config) && (std::filesystem::exists(tokenizer, unreadable) || unreadable)) {
    problems.collect([&] {
      try {
        inputs.extras.files["tokenizer.json"] = read_tokenizer(tokenizer);
      } catch (const RequestError& error) {
        throw error.at("config: /data/tokenizer/path: ");
      }
    });
  }
  problems.collect([&] { refuse_checkpoints(config); });
  problems.collect([&] { inputs.datasets = build_datasets(data_spec(config, loaded.written)); });
  if (inputs.datasets.train != nullptr && config.training.train_iters == 0) {
    const std::int64_t samples =
        inputs.datasets.train->samples_per_epoch() * config.training.train_epochs;
    problems.collect([&] {
      set_train_iters(config, std::max<std::int64_t>(1, samples / config.batch.global_batch_size));
    });
  }
  problems.raise();
  inputs.lists = std::make_shared<RunLists>(inputs.schedule, inputs.config.training.train_iters);
  return inputs;
}

void go_on_from(TrainingInputs& inputs, std::int64_t k,
                std::function<void(Context&, State&)> restore) {
  const std::int64_t iterations = inputs.config.training.train_iters;
  if (k < 0 || k >= iterations) {
    throw RequestError(
        fmt::format("a run of {} iterations can't begin at iteration {}", iterations, k));
  }
  inputs.first_iteration = k;
  inputs.restore = std::move(restore);
  inputs.lists = std::make_shared<RunLists>(inputs.schedule, iterations - k);
}

TrainingInputs prepare_training(const Config& config) {
  return prepare_training(LoadedConfig{.config = config});
}

TrainingSummary train_rank(const TrainingInputs& inputs, Transport& transport, Device& device,
                           const TrainerHooks& hooks) {
  Context context(device, static_cast<int>(inputs.config.runtime.threads_per_rank),
                  kernel_options(inputs.config));
  std::optional<TrainingRun> run;  // goes after the others know of an error
  return end_all_on_error(transport, [&] {
    run.emplace(inputs, transport, context, hooks);
    return run->run();
  });
}

TrainingSummary train_local(const TrainingInputs& inputs, const Devices& devices,
                            const TrainerHooks& hooks) {
  const Config& config = inputs.config;
  const TransportKind& kind = transport_of(config);
  if (kind.run_threads == nullptr) {
    throw RequestError(
        fmt::format("config: /runtime/transport: \"{}\" runs no ranks in one process", kind.name));
  }
  TrainingSummary summary;
  kind.run_threads(static_cast<int>(config.world_size()), transport_options(config),
                   [&](Transport& transport) {
                     const int rank = transport.world().rank();
                     TrainingSummary mine = train_rank(inputs, transport, devices.of(rank), hooks);
                     if (rank == 0) summary = std::move(mine);
                   });
  return summary;
}

TrainingSummary train_local(const TrainingInputs& inputs, const TrainerHooks& hooks) {
  return train_local(inputs, Devices(inputs.config), hooks);
}

}  // namespace trident
