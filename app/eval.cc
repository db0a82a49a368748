// `eval`: the loss of trained weights over texts, by source and part.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "app/printer.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/process/terminal.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint_tools.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "formats/hugging_face/model_directory.h"
#include "kernels/cuda_device.h"
#include "run/evaluation/evaluation.h"
#include "run/generation/score.h"
#include "run/startup/bf16_products.h"

namespace trident::app {
namespace {

struct EvalOptions {
  EvaluationRequest evaluation;
  std::optional<std::string> score;  // a file of scoring requests
  std::string format = "text";
};

nlohmann::ordered_json json_of(const EvaluationRow& row) {
  nlohmann::ordered_json one{{"source", row.source}, {"part", row.part},
                             {"tokens", row.tokens}, {"bytes", nullptr},
                             {"loss", row.loss()},   {"perplexity", row.perplexity()}};
  if (row.bytes) one["bytes"] = *row.bytes;
  const auto bits = row.bits_per_byte();
  one["bits_per_byte"] = bits ? nlohmann::ordered_json(*bits) : nlohmann::ordered_json();
  return one;
}

nlohmann::ordered_json json_of(const std::vector<EvaluationRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const EvaluationRow& row : rows) list.push_back(json_of(row));
  return list;
}

std::string table_of(const Evaluation& result) {
  std::vector<EvaluationRow> rows = result.rows;
  rows.insert(rows.end(), result.sums.begin(), result.sums.end());
  std::size_t width = 6;
  for (const EvaluationRow& row : rows) width = std::max(width, row.source.size());
  std::string text = fmt::format("{:{}}  {:10}  {:>12}  {:>9}  {:>11}  {:>9}\n", "source", width,
                                 "part", "tokens", "loss", "perplexity", "bits/byte");
  for (const EvaluationRow& row : rows) {
    const auto bits = row.bits_per_byte();
    text += fmt::format("{:{}}  {:10}  {:12}  {:9.5f}  {:11.5g}  {:>9}\n", row.source, width,
                        row.part, row.tokens, row.loss(), row.perplexity(),
                        bits ? fmt::format("{:.5f}", *bits) : "-");
  }
  return text;
}

// Prints a line for each request: its log-likelihood, and whether greedy decoding gives the
// continuation.
int score_requests(const EvalOptions& request, const Launch& launch) {
  if (launch.mpi) throw RequestError("--score: runs in one process; start it without mpirun");
  const bool standard = *request.score == "-";
  const std::string name = standard ? "standard input" : *request.score;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  const std::string text = standard ? read_standard_input(kMost) : read_stream(name, kMost);
  const std::vector<ScoreRequest> requests = read_score_requests(text, name);
  const std::string weights = weights_directory(request.evaluation.directory);
  require_whole_weights(weights);
  const auto device = find_gpus().count > 0 ? make_cuda_device(0) : make_cpu_device();
  const ArchitectureSet architectures = built_in_architectures();
  Config config = config_of_directory(architectures, weights);
  const std::string note =
      notes_of(weights, architectures.at(config.model.architecture)->formats());
  if (!note.empty()) print_error(note);
  config.runtime.bf16_products =
      products_of_weights(config, {request.evaluation.directory, weights}, launch);
  Printer printer;
  // Results on a terminal show the progress themselves.
  CountingLine counting(printer, terminal_of(STDERR_FILENO).live, "scoring", "requests");
  const bool shown = terminal_of(STDOUT_FILENO).live;
  std::int64_t done = 0;
  run_local(1, {}, [&](Transport& transport) {
    Context context(*device, launch.cores,
                    kernel_options(config.training, config.precision, config.runtime));
    score(context, transport, architectures, weights, requests, [&](const Score& one) {
      fmt::print("{}\n", json_text(nlohmann::ordered_json{{"log_likelihood", one.log_likelihood},
                                                          {"greedy", one.greedy}}));
      if (!shown) counting.show(++done, std::ssize(requests));
    });
  });
  return 0;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts = items_of("--part", list);
  const std::vector<std::string> known{"train", "validation", "test", "all"};
  for (const std::string& part : parts) {
    if (std::ranges::find(known, part) != known.end()) continue;
    throw RequestError(
        fmt::format("--part: \"{}\": needs train, validation, test or all", printable(part, 40)));
  }
  return parts;
}

// Paths become part of a config, which must be UTF-8.
void check_names(const EvaluationRequest& asked) {
  std::vector<std::string> names = asked.data;
  names.push_back(asked.directory);
  names.push_back(asked.tokenizer);
  for (const std::string& name : names) {
    if (invalid_utf8(name) == std::string::npos) continue;
    throw RequestError(fmt::format("{}: needs a name in UTF-8", printable(name)));
  }
}

int evaluate_texts(const EvalOptions& request, const Launch& launch) {
  launch.start->join("eval");
  check_names(request.evaluation);
  if (request.score) return score_requests(request, launch);
  Printer printer;
  const bool live = terminal_of(STDERR_FILENO).live && !launch.mpi;
  EvaluationHooks hooks{.report = [&](const std::string& line) { printer.error(line); }};
  Evaluation result;
  {
    TokenizingLine tokenizing(printer, live);
    std::optional<CountingLine> counting;  // created at the first window
    hooks.tokenizing.threads = launch.cores;
    hooks.tokenizing.progress = [&](const TokenizingProgress& p) { tokenizing.show(p); };
    hooks.progress = [&](std::int64_t done, std::int64_t total) {
      if (!counting) counting.emplace(printer, live, "evaluating", "tokens");
      counting->show(done, total);
    };
    result = evaluate(request.evaluation, launch, hooks);
  }
  printer.drain();
  if (!launch.leads) return 0;
  if (request.format == "json") {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"weights", result.directory},
                                                        {"sequence_length", result.sequence_length},
                                                        {"stride", result.stride},
                                                        {"results", json_of(result.rows)},
                                                        {"all_sources", json_of(result.sums)}},
                                 2));
  } else {
    fmt::print("{}", printable_lines(table_of(result)));
  }
  return 0;
}

}  // namespace

void keep_paths_in_brackets(std::vector<std::string>& words) {
  bool paths = false;
  if (words.size() > 2 && words[0] == "tokenizer") {
    for (std::size_t i = 2; i < words.size(); ++i) {
      if (!words[i - 1].starts_with("-") && words[i].starts_with("[")) words[i].insert(0, "./");
    }
  }
  if (words.empty() || words[0] != "eval") return;
  for (std::string& word : words) {
    const bool joined = word.starts_with("--data=");
    if (word.starts_with("-")) paths = word == "--data" || joined;
    if (paths && word.ends_with("]") && word.find('[') == (joined ? 7U : 0U)) {
      word.insert(joined ? 7 : 0, "./");
    }
  }
}

void add_eval(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("eval", "Loss and perplexity of trained weights over texts");
  auto options = std::make_shared<EvalOptions>();
  EvaluationRequest& asked = options->evaluation;
  command->add_option("directory", asked.directory, "A Hugging Face directory, or a run")
      ->required();
  auto* data =
      command
          ->add_option(
              "--data", asked.data,
              "After the directory: paths as in data.train, texts, folders, patterns, pairs; "
              "default: the run's")
          ->allow_extra_args(true);
  auto* split = command->add_option(
      "--split", asked.split, "Sizes of training, validation and test part, such as 949,50,1");
  auto* part =
      command
          ->add_option_function<std::string>(
              "--part", [&asked](const std::string& list) { asked.parts = parts_of(list); },
              "train, validation, test or all, comma-separated; else the held-out parts, or all")
          ->type_name("TEXT:{train,validation,test,all}");
  auto* tokenizer = command->add_option(
      "--tokenizer", asked.tokenizer, "A tokenizer.json; else that of the weights, or of the run");
  auto* stride = command
                     ->add_option("--stride", asked.stride,
                                  "Tokens by which a window advances; earlier ones are context")
                     ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  auto* set =
      command
          ->add_option("--set", asked.set,
                       "Override a key of the config: the layout, "
                       "precision.dtype=fp32, batch.micro_batch_size=8, data.sequence_length=512")
          ->allow_extra_args(false);
  auto* ranks =
      command->add_option("--ranks", asked.ranks, "World size; the data-parallel size follows");
  command
      ->add_option("--score", options->score,
                   "Instead of texts: a file (or -) of JSON lines {\"context\": [ids], "
                   "\"continuation\": [ids]}; each gets a line with its log-likelihood")
      ->excludes(data)
      ->excludes(split)
      ->excludes(part)
      ->excludes(tokenizer)
      ->excludes(stride)
      ->excludes(set)
      ->excludes(ranks);
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return evaluate_texts(*options, launch); };
  });
}

}  // namespace trident::app
