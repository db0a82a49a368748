// Evaluates trained weights: the loss over complete texts. Each token is predicted once, with at
// most one sequence of tokens as its context. `trident eval` uses this interface.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/token_source.h"
#include "run/startup/job_config.h"

namespace trident {

struct EvaluationRequest {
  std::string directory;  // a Hugging Face directory, or a run's folder
  // Paths, as for open_token_source(). If empty, the data of the run's config.
  std::vector<std::string> data;
  std::string split;  // of each path, "949,50,1"; "": the split of the run's config, if any
  // Of "train", "validation", "test", "all". If empty, the held-out data; "all" if there is none.
  std::vector<std::string> parts;
  std::string tokenizer;         // "": the tokenizer beside the weights, else the run's
  std::int64_t stride = 0;       // 0: the sequence length (EvaluationWindows)
  std::vector<std::string> set;  // overrides of the config for the evaluation: the layout, …
  std::optional<std::int64_t> ranks;
};

// A window of s tokens and their labels, beginning at token `begin`. `counted` of its losses count,
// from index `first` on.
struct EvaluationWindow {
  std::int64_t begin, first, counted;
};
// The windows over n tokens. Every token but the first is predicted exactly once. The first window
// counts all its losses; a later window counts its last `stride` (1 to s), or fewer at the end.
// Each of these tokens thus has at least s - stride tokens of context. A text shorter than a window
// counts its first n - 1 losses.
struct EvaluationWindows {
  std::int64_t tokens, sequence_length, stride;

  std::int64_t count() const;
  EvaluationWindow operator[](std::int64_t index) const;
};

struct EvaluationRow {
  std::string source, part;
  std::int64_t tokens = 0;  // predicted tokens
  // Bytes of their text (evaluation_bytes.h); empty if no tokenizer is known.
  std::optional<std::int64_t> bytes;
  double loss_sum = 0;  // nats

  double loss() const { return loss_sum / static_cast<double>(tokens); }
  double perplexity() const;
  std::optional<double> bits_per_byte() const;
};

struct Evaluation {
  std::string directory;  // the directory of the weights
  std::int64_t sequence_length = 0, stride = 0;
  std::vector<EvaluationRow> rows;  // one for each source and part
  std::vector<EvaluationRow> sums;  // one for each part, where there are several sources
};

struct EvaluationHooks {
  TokenizingOptions tokenizing = {};
  std::function<void(const std::string&)> report = {};  // a line for people
  // Predicted tokens so far, and in all. Called on rank 0.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

// Evaluates in the layout that the overrides give. Runs in this process; under MPI it is collective
// over the job's processes, between launch.start->join() and finish(). RequestError with all
// problems; Error where a loss is not finite. Writes nothing but the cache of tokens. All ranks get
// the same rows; only rank 0 sets their `bytes`.
Evaluation evaluate(const EvaluationRequest&, const Launch&, const EvaluationHooks&);

}  // namespace trident
