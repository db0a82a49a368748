// `tokenizer train`: makes a tokenizer from texts.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "app/printer.h"
#include "app/stop_signals.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/process/terminal.h"
#include "base/units.h"
#include "datasets/tokenizer/gpt_pattern.h"
#include "datasets/tokenizer_training.h"
#include "engine/setup/text_setup.h"
#include "planner/plan/fit.h"

namespace trident::app {
namespace {

struct TokenizerOptions {
  TokenizerTraining training;
  std::string out = "tokenizer.json", pre_tokenizer = "gpt2", document = "line", errors = "strict",
              memory = "4GiB", format = "text";
  std::optional<std::string> pattern;
  bool overwrite = false, quiet = false;
};

// Shows the progress: a line that is redrawn on a terminal, otherwise a line every ten seconds.
class TrainingLine {
 public:
  TrainingLine(Printer& printer, bool live) : printer_(printer), live_(live) {}
  TrainingLine(const TrainingLine&) = delete;
  TrainingLine& operator=(const TrainingLine&) = delete;
  ~TrainingLine() {
    if (open_) printer_.live("", false);
  }

  // `part` is the completed fraction; `seconds` is the time since this phase began.
  void show(const std::string& what, double part, double seconds) {
    const auto now = Clock::now();
    const auto between = live_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000);
    if (now - shown_ < between) return;
    shown_ = now;
    open_ = live_;
    std::string line = what;
    if (part > 0) line += fmt::format(", {:.0f} s left", seconds * (1 - part) / part);
    if (!live_) return printer_.error(line);
    const auto columns = static_cast<std::size_t>(terminal_of(STDERR_FILENO).columns);
    if (columns > 0) line.resize(std::min(line.size(), columns - 1));
    printer_.live(line, false);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Printer& printer_;
  bool live_, open_ = false;
  Clock::time_point shown_ = Clock::now();
};

void show_progress(TokenizerTraining& training, TrainingLine& line) {
  training.counting.progress = [&line](const ReadingProgress& p) {
    const double part =
        static_cast<double>(p.read) / static_cast<double>(std::max<std::uint64_t>(p.total, 1));
    line.show(fmt::format("counting words: {:.0f}% of {:.1f} MB, {:.1f} MB/s", 100 * part,
                          static_cast<double>(p.total) * 1e-6,
                          static_cast<double>(p.read) * 1e-6 / std::max(p.seconds, 1e-9)),
              part, p.seconds);
  };
  const auto begin = std::make_shared<std::optional<std::chrono::steady_clock::time_point>>();
  training.bpe.progress = [&line, begin, vocab_size = training.bpe.vocab_size](std::int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!*begin) *begin = now;
    // Shows no time left: early merges occur in more words and take longer than later ones.
    line.show(fmt::format("merging: {} of up to {}", done, vocab_size - 256), 0,
              std::chrono::duration<double>(now - **begin).count());
  };
}

void check_output(const TokenizerOptions& options) {
  need_writable("--out", options.out);
  std::error_code none;
  if (std::filesystem::exists(options.out, none) &&
      !std::filesystem::is_regular_file(options.out, none)) {
    throw RequestError(fmt::format("--out: {}: is no file", printable(options.out)));
  }
  if (options.overwrite || !std::filesystem::exists(options.out, none)) return;
  throw RequestError(
      fmt::format("--out: {}: is there already; choose another name, or give --overwrite to "
                  "replace it",
                  printable(options.out)));
}

void report(const TokenizerOptions& options, const TrainedTokenizer& trained, double seconds) {
  const BpeTraining& bpe = options.training.bpe;
  if (trained.left_out > 0) {
    print_error(fmt::format(
        "--memory {}: was too little for all words, so words that had come {} or less often when "
        "it ran out are left out; {} different ones were used",
        options.memory, trained.left_out == 1 ? "once" : fmt::format("{} times", trained.left_out),
        trained.distinct_words));
  }
  if (trained.vocab_size < bpe.vocab_size) {
    print_error(fmt::format(
        "the vocabulary has {} entries, not {}: no other pair of tokens comes {} times or more; "
        "give more text, or a lower --min-frequency",
        trained.vocab_size, bpe.vocab_size, std::max<std::int64_t>(1, bpe.min_frequency)));
  }
  const Tokenizer tokenizer(trained.text, options.out);
  const auto end = end_of_text(tokenizer, "", "");
  if (!end) {
    print_error(
        "no special token has one of the usual names of the end of a text, as <|endoftext|>: name "
        "it in data.tokenizer.eos_token, or set data.append_eod to false");
  }
  if (options.format == "json") {
    nlohmann::ordered_json document = {
        {"path", options.out},          {"vocab_size", trained.vocab_size},
        {"merges", trained.merges},     {"special_tokens", bpe.special_tokens},
        {"end_of_text", nullptr},       {"text_bytes", trained.text_bytes},
        {"words", trained.words},       {"distinct_words", trained.distinct_words},
        {"left_out", trained.left_out}, {"seconds", seconds}};
    if (end) document["end_of_text"] = *end;
    fmt::print("{}\n", json_text(document, 2));
    return;
  }
  fmt::print("wrote {}: {} entries, {}, of {:.3g} MB of text with {}, in {:.1f} s\n",
             printable(options.out), trained.vocab_size, counted(trained.merges, "merge"),
             static_cast<double>(trained.text_bytes) * 1e-6,
             counted(trained.distinct_words, "different word"), seconds);
}

int train(TokenizerOptions options, const Launch& launch) {
  if (launch.mpi) {
    throw RequestError("one process makes a tokenizer; start it without mpirun");
  }
  const auto begin = std::chrono::steady_clock::now();
  Printer printer;
  StopSignals signals([](const char* signal, bool begun) {
    if (!begun) print_error(std::string(signal) + ": stopped; no tokenizer was written");
  });
  check_output(options);
  TokenizerTraining& training = options.training;
  for (const NamedPattern& one : named_gpt_patterns()) {
    if (one.name == options.pre_tokenizer) training.pattern = one.regex;
  }
  if (options.pattern) training.pattern = *options.pattern;
  training.replace_errors = options.errors == "replace";
  training.counting.by_line = options.document == "line";
  training.counting.threads = launch.cores;
  training.counting.memory = static_cast<std::uint64_t>(parse_memory(options.memory));
  training.report = [&](const std::string& line) { printer.error(line); };
  TrainedTokenizer trained;
  {
    TrainingLine line(printer, terminal_of(STDERR_FILENO).live);
    if (!options.quiet) show_progress(training, line);
    trained = train_tokenizer(training);
  }
  printer.drain();
  signals.begin();  // from here on a signal lets the file be completed
  AtomicFile file(options.out);
  file.write(trained.text);
  file.commit(options.overwrite);
  report(options, trained,
         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return 0;
}

std::vector<std::string> pattern_names() {
  std::vector<std::string> names;
  for (const NamedPattern& one : named_gpt_patterns()) names.emplace_back(one.name);
  return names;
}

void add_training(CLI::App& command, const Launch& launch, Action& action) {
  auto options = std::make_shared<TokenizerOptions>();
  TokenizerTraining& training = options->training;
  training.bpe.special_tokens = {"<|endoftext|>"};
  command
      .add_option("data", training.paths,
                  "Texts as in data.train: .txt, .jsonl, .parquet, also .gz and .zst; folders, "
                  "patterns")
      ->required();
  command.add_option("--out", options->out, "The file to write")->capture_default_str();
  command.add_flag("--overwrite", options->overwrite, "Replace a file that is there");
  command
      .add_option("--vocab-size", training.bpe.vocab_size,
                  "Ids: special tokens, 256 bytes, and one for each merge")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command
      .add_option("--min-frequency", training.bpe.min_frequency,
                  "How often a pair has to occur to be merged")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  command
      .add_option("--max-token-length", training.bpe.max_token_length,
                  "Tokens made by merges are shorter than that, in bytes")
      ->check(CLI::Range(1, 1'000'000'000));
  command
      .add_option("--special-tokens", training.bpe.special_tokens,
                  "They get the first ids; may be given again")
      ->allow_extra_args(false)
      ->capture_default_str();
  auto* name = command
                   .add_option("--pre-tokenizer", options->pre_tokenizer,
                               "Texts are split into words as this model's tokenizer does")
                   ->check(CLI::IsMember(pattern_names()))
                   ->capture_default_str();
  command
      .add_option("--pattern", options->pattern,
                  "A regular expression in place of those models': words are its matches")
      ->excludes(name);
  command
      .add_option("--document", options->document,
                  "The part of a text file that is split into words by itself: each line, as "
                  "Tokenizer.train(files) has it, or the complete file")
      ->check(CLI::IsMember({"line", "file"}))
      ->capture_default_str();
  command.add_option("--json-key", training.json_key, "As data.json_key")->capture_default_str();
  command.add_option("--errors", options->errors, "As data.tokenizer.errors")
      ->check(CLI::IsMember({"strict", "replace"}))
      ->capture_default_str();
  command
      .add_option("--memory", options->memory,
                  "For the words of the texts; where it is too little, the rarest are left out")
      ->capture_default_str();
  command.add_flag("--quiet", options->quiet, "No progress");
  add_format_option(command, options->format);
  command.callback([options, &launch, &action] {
    action = [options, &launch] { return train(*options, launch); };
  });
}

}  // namespace

void add_tokenizer(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("tokenizer", "Make a tokenizer");
  command->require_subcommand(1);
  add_training(*command->add_subcommand("train", "Byte-level BPE from texts: a tokenizer.json"),
               launch, action);
}

}  // namespace trident::app
