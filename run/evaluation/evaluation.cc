#include "run/evaluation/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/error.h"
#include "base/request_problems.h"
#include "checkpoint/checkpoint_tools.h"
#include "datasets/datasets.h"
#include "engine/evaluator.h"
#include "engine/rank_model.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "engine/setup/text_setup.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/model_directory.h"
#include "run/evaluation/evaluation_bytes.h"
#include "run/evaluation/evaluation_config.h"
#include "run/startup/bf16_products.h"
#include "run/startup/job_checks.h"
#include "settings/ineffective_keys.h"

namespace trident {
namespace {

// A contiguous range of a source's tokens.
struct Part {
  EvaluationRow row;
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0, end = 0;

  EvaluationWindows windows(std::int64_t sequence_length, std::int64_t stride) const {
    return {end - begin, sequence_length, stride};
  }
};

class PartList {
 public:
  PartList(const Config& config, const EvaluationRequest& request)
      : config_(config), request_(request) {
    if (config.data.split.empty() && config.data.validation.empty()) default_ = {"all"};
  }

  std::vector<Part> open(const TextAccess& access) {
    std::vector<Part> parts;
    untokenized_ = false;
    left_.clear();
    RequestProblems problems;
    const bool splits = !config_.data.split.empty();
    for (const DataSource& one : config_.data.train) {
      if (!splits && !wants("all") && !wants("train")) continue;
      problems.collect([&] {
        const auto source = open(one.path, access);
        if (source == nullptr) return;
        const std::int64_t n = source->size();
        if (!splits) return add(parts, one.path, wants("all") ? "all" : "train", source, 0, n);
        const auto fractions = config_.data.split_fractions();
        const auto edges = split_edges(n, fractions);
        if (wants("all")) add(parts, one.path, "all", source, 0, n);
        if (wants("train")) add(parts, one.path, "train", source, 0, edges[0]);
        if (wants("validation") && fractions[1] > 0) {
          add(parts, one.path, "validation", source, edges[0], edges[1]);
        }
        if (wants("test") && fractions[2] > 0) add(parts, one.path, "test", source, edges[1], n);
      });
    }
    for (const ValidationSet& set : config_.data.validation) {
      if (!wants("validation")) break;
      for (const DataSource& one : set.sources) {
        problems.collect([&] {
          const auto source = open(one.path, access);
          const std::string name = set.name.empty() ? one.path : set.name + ": " + one.path;
          if (source != nullptr) add(parts, name, "validation", source, 0, source->size());
        });
      }
    }
    problems.raise();
    if (parts.empty() && !untokenized_) {
      throw RequestError(left_.empty() ? "--part: no source has such a part; --split makes them"
                                       : left_.front());
    }
    return parts;
  }
  bool untokenized() const { return untokenized_; }
  bool needs_encoder() const {
    return std::ranges::any_of(config_.data.train, [&](const DataSource& one) {
      std::error_code missing;
      return std::filesystem::exists(one.path, missing) &&
             is_tokenized(one.path, config_.data.tokenizer.type == "byte");
    });
  }
  // Messages about parts that are too short.
  const std::vector<std::string>& left() const { return left_; }

 private:
  bool wants(const char* part) const {
    const auto& asked = !request_.parts.empty() ? request_.parts : default_;
    return std::ranges::find(asked, part) != asked.end();
  }

  std::shared_ptr<const TokenSource> open(const std::string& path, const TextAccess& access) {
    std::shared_ptr<const TokenSource> source =
        open_token_source(path, config_.model.vocab_size, access);
    if (source == nullptr) untokenized_ = true;
    return source;
  }

  void add(std::vector<Part>& parts, const std::string& name, const char* part,
           std::shared_ptr<const TokenSource> source, std::int64_t begin, std::int64_t end) {
    if (end - begin < 2) {
      const std::string why = fmt::format("{}: its part \"{}\" holds {} tokens of {}; needs 2",
                                          name, part, end - begin, source->size());
      if (!request_.parts.empty()) throw RequestError(why);
      left_.push_back(why + ", and is left out");
      return;
    }
    parts.push_back(
        {{.source = name, .part = part, .tokens = end - begin - 1}, std::move(source), begin, end});
  }

  const Config& config_;
  const EvaluationRequest& request_;
  std::vector<std::string> default_ = {"validation", "test"};
  bool untokenized_ = false;
  std::vector<std::string> left_;
};

// The windows of all parts, one part after the other.
class WindowList {
 public:
  WindowList(const std::vector<Part>& parts, const DataConfig& data, std::int64_t stride) {
    for (const Part& part : parts) {
      windows_.push_back(part.windows(data.sequence_length, stride));
      ends_.push_back(count() + windows_.back().count());
    }
  }

  struct Placed {
    std::size_t part;
    EvaluationWindow window;
  };
  std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  Placed operator[](std::int64_t index) const {
    const auto part =
        static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    return {part, windows_[part][part == 0 ? index : index - ends_[part - 1]]};
  }

 private:
  std::vector<EvaluationWindows> windows_;
  std::vector<std::int64_t> ends_;  // index behind the last window of each part
};

void read_window(const Part& part, const EvaluationWindow& window, std::int64_t sequence,
                 std::span<std::int32_t> tokens) {
  // A part shorter than a window is padded with arbitrary tokens; their losses don't count.
  const std::int64_t begin = part.begin + window.begin;
  const std::int64_t there = std::min(sequence + 1, part.end - begin);
  part.source->read(begin, tokens.first(static_cast<std::size_t>(there)));
  std::ranges::fill(tokens.subspan(static_cast<std::size_t>(there)), tokens[0]);
}

// Runs one rank and adds the losses to the rows. The order of additions is the same on every rank
// and in every layout.
void run_rank(const Config& config, const std::string& weights, const Schedule& schedule,
              std::vector<Part>& parts, std::int64_t stride, Transport& transport, Device& device,
              const EvaluationHooks& hooks) {
  Context context(device, static_cast<int>(config.runtime.threads_per_rank),
                  kernel_options(config.training, config.precision, config.runtime));
  const Topology topology = topology_of(config.parallel, schedule, transport);
  RankModel model(context, config, *architecture_of(config), schedule, topology);
  Evaluator evaluator(model, schedule);
  load_hugging_face(model, weights);
  transport.world().without_timeout("files").barrier(context);

  const std::int64_t s = config.data.sequence_length, b = config.batch.micro_batch_size;
  const std::int64_t m = config.num_microbatches();
  const std::int64_t samples = config.batch.global_batch_size;
  const WindowList windows(parts, config.data, stride);
  std::int64_t total = 0, done = 0;
  for (const Part& part : parts) total += part.row.tokens;
  const std::int64_t own = batch_shape(config.batch, topology).place * m * b;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(s) + 1);
  const auto report = [&] {
    if (hooks.progress && transport.world().rank() == 0) hooks.progress(done, total);
  };
  report();
  for (std::int64_t pass = 0; pass < windows.count(); pass += samples) {
    std::vector<HostMicroBatch> batches(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m * b; ++i) {
      // Beyond the end the last window is repeated; these losses don't count.
      const auto window = windows[std::min(pass + own + i, windows.count() - 1)];
      HostMicroBatch& batch = batches[static_cast<std::size_t>(i / b)];
      batch.sample_ids.push_back(pass + own + i);
      if (!model.reads_tokens()) continue;
      read_window(parts[window.part], window.window, s, tokens);
      batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end() - 1);
      batch.labels.insert(batch.labels.end(), tokens.begin() + 1, tokens.end());
    }
    const std::vector<float> losses = evaluator.token_losses(batches);
    for (std::int64_t i = 0; i < samples && pass + i < windows.count(); ++i) {
      const auto [part, window] = windows[pass + i];
      const auto first = losses.begin() + i * s + window.first;
      double sum = 0;
      for (auto loss = first; loss != first + window.counted; ++loss) sum += *loss;
      parts[part].row.loss_sum += sum;
      done += window.counted;
    }
    report();
  }
}

// Reduces the batch to the number of windows for short texts. The micro-batch size becomes the same
// in all layouts. The number of micro-batches is reduced on one rank only, since a schedule of
// several ranks may need it.
void fit_batch(Config& config, const EvaluationRequest& request, const std::vector<Part>& parts,
               std::int64_t stride) {
  const bool given = std::ranges::any_of(
      request.set, [](const std::string& one) { return one.starts_with("batch"); });
  if (given) return;
  const std::int64_t windows = WindowList(parts, config.data, stride).count();
  BatchConfig& batch = config.batch;
  const std::int64_t before = batch.micro_batch_size * batch.gradient_accumulation_steps;
  const std::int64_t places = batch.global_batch_size / before;
  batch.micro_batch_size = std::min(batch.micro_batch_size, windows);
  const std::int64_t needed = (windows + batch.micro_batch_size - 1) / batch.micro_batch_size;
  if (config.world_size() == 1) {
    batch.gradient_accumulation_steps = std::min(batch.gradient_accumulation_steps, needed);
  }
  batch.global_batch_size = batch.micro_batch_size * batch.gradient_accumulation_steps * places;
}

std::vector<EvaluationRow> sums_by_part(const std::vector<EvaluationRow>& rows) {
  std::vector<EvaluationRow> sums;
  for (const EvaluationRow& row : rows) {
    auto sum = std::ranges::find(sums, row.part, &EvaluationRow::part);
    if (sum == sums.end()) {
      sum = sums.insert(sum, {.source = "all sources", .part = row.part, .bytes = 0});
    }
    sum->tokens += row.tokens;
    sum->loss_sum += row.loss_sum;
    sum->bytes = sum->bytes && row.bytes ? std::optional(*sum->bytes + *row.bytes) : std::nullopt;
  }
  return sums.size() < rows.size() ? sums : std::vector<EvaluationRow>();
}

}  // namespace

double EvaluationRow::perplexity() const {
  return std::exp(loss());
}

std::optional<double> EvaluationRow::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return loss_sum / std::numbers::ln2 / static_cast<double>(*bytes);
}

std::int64_t EvaluationWindows::count() const {
  const std::int64_t rest = std::max<std::int64_t>(0, tokens - 1 - sequence_length);
  return 1 + (rest + stride - 1) / stride;
}

EvaluationWindow EvaluationWindows::operator[](std::int64_t index) const {
  if (index == 0) return {0, 0, std::min(sequence_length, tokens - 1)};
  const std::int64_t before = sequence_length + (index - 1) * stride;
  const std::int64_t counted = std::min(stride, tokens - 1 - before);
  return {before + counted - sequence_length, sequence_length - counted, counted};
}

Evaluation evaluate(const EvaluationRequest& request, const Launch& launch,
                    const EvaluationHooks& hooks) {
  const std::string weights = weights_directory(request.directory);
  require_whole_weights(weights);
  const ConfigRequest asked{.path = "eval",
                            .set = request.set,
                            .ranks = request.ranks,
                            .text = evaluation_config(request, weights)};
  const LoadedConfig loaded = load(asked, launch);
  Config config = loaded.config;
  if (loaded.parallel_is_auto)
    throw RequestError("--set: parallel \"auto\" isn't for eval: give a layout");
  agree_on_bf16_products(config, launch, [&] {
    return Bf16Choice{products_of_weights(config, {request.directory, weights}, launch), ""};
  });
  const std::int64_t stride = request.stride > 0 ? request.stride : config.data.sequence_length;
  RequestProblems problems;
  std::optional<Devices> devices;
  check_machine(config, launch, problems, devices);
  problems.collect([&] { schedule_of(config); });
  problems.collect([&] { check_hugging_face(weights, config, *architecture_of(config)); });
  problems.collect([&] {
    if (stride <= config.data.sequence_length) return;
    throw RequestError(fmt::format("--stride: {}: is beyond data.sequence_length, {}", stride,
                                   config.data.sequence_length));
  });
  TextAccess access;
  access.encoder = document_encoder_when_asked(config.data);
  access.cache = config.data.cache_path;
  access.tokenizing = hooks.tokenizing;
  access.report = hooks.report;
  access.remembers = true;
  PartList list(config, request);
  std::vector<Part> parts;
  problems.collect([&] {
    if (list.needs_encoder()) access.encoder();  // reports an error once, not for each source
    parts = list.open(access);
  });
  problems.raise();
  tokenize_in_turn(
      config.data.cache_path, launch, [&] { return list.untokenized(); },
      [&](bool writes) {
        access.writes = writes;
        parts = list.open(access);
      });
  std::vector<Fingerprint> prints{{"--stride", std::to_string(stride), "give all ranks the same"}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    prints.push_back({fmt::format("part {}", i),
                      fmt::format("{} [{}, {})", parts[i].row.part, parts[i].begin, parts[i].end),
                      "give all ranks the same --part and --split"});
    add_fingerprint(fmt::format("part {}", i), *parts[i].source, prints);
  }
  compare_ranks(config, weights, prints, *devices, launch);
  launch.start->done();
  if (launch.leads && hooks.report) {
    for (const std::string& note : ineffective_key_notes(loaded)) hooks.report(note);
    const std::string note =
        notes_of(weights, architecture_of(config)->formats(), config.model.mtp_num_layers);
    if (!note.empty()) hooks.report(note);
    for (const std::string& part : list.left()) hooks.report(part);
  }
  fit_batch(config, request, parts, stride);
  const Schedule schedule = schedule_of(config);

  const auto on_rank = [&](Transport& transport) {
    std::vector<Part> own = parts;
    end_all_on_error(transport, [&] {
      run_rank(config, weights, schedule, own, stride, transport,
               devices->of(launch.mpi ? launch.local_rank : transport.world().rank()), hooks);
      return 0;
    });
    return own;
  };
  const TransportKind& kind = transport_of(config);
  std::vector<Part> done;
  if (launch.mpi && kind.run_process != nullptr) {
    kind.run_process(transport_options(config),
                     [&](Transport& transport) { done = on_rank(transport); });
  } else {
    kind.run_threads(static_cast<int>(config.world_size()), transport_options(config),
                     [&](Transport& transport) {
                       std::vector<Part> own = on_rank(transport);
                       if (transport.world().rank() == 0) done = std::move(own);
                     });
  }
  Evaluation result{
      .directory = weights, .sequence_length = config.data.sequence_length, .stride = stride};
  for (Part& part : done) {
    if (!std::isfinite(part.row.loss_sum)) {
      throw Error(fmt::format("{}: the loss of {} ({}) is not finite", weights, part.row.source,
                              part.row.part));
    }
    if (launch.leads) {
      try {
        const DocumentEncoder known = access.encoder();
        part.row.bytes =
            text_bytes_of(*part.source, part.begin + 1, part.end, known.tokenizer.get());
      } catch (const RequestError&) {
        // The tokenizer of these tokens isn't known.
      }
    }
    result.rows.push_back(part.row);
  }
  result.sums = sums_by_part(result.rows);
  return result;
}

}  // namespace trident
