// The loss of trained weights over whole texts: each token once, with up to a sequence of tokens
// before it.
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
  std::string directory;          // a Hugging Face directory, or a run's
  std::vector<std::string> data;  // paths (open_token_source()); none: those of the run's config
  std::string split;              // "949,50,1" of each of them; "": whole, or as the run's config
  std::vector<std::string>
      parts;                     // of "train", "validation", "test", "all"; none: what is held out
  std::string tokenizer;         // "": the one beside the weights, else the run's
  std::int64_t stride = 0;       // 0: the sequence length (EvaluationWindows)
  std::vector<std::string> set;  // overrides of the config that this makes: the layout, …
  std::optional<std::int64_t> ranks;
};

// A stretch of s tokens and their labels, of which the last `counted` losses count.
struct EvaluationWindow {
  std::int64_t begin, first, counted;
};
// Windows over n tokens, of which all but the first are predicted, each once: the first window
// counts all its tokens, later ones the last `stride` (1 to s) or fewer at the end, so that at
// least s - stride come before each. A text shorter than a window counts its first n - 1.
struct EvaluationWindows {
  std::int64_t tokens, sequence_length, stride;

  std::int64_t count() const;
  EvaluationWindow operator[](std::int64_t index) const;
};

struct EvaluationRow {
  std::string source, part;
  std::int64_t tokens = 0;            // that are predicted
  std::optional<std::int64_t> bytes;  // of their text (evaluation_bytes.h), if a tokenizer is known
  double loss_sum = 0;                // nats

  double loss() const { return loss_sum / static_cast<double>(tokens); }
  double perplexity() const;
  std::optional<double> bits_per_byte() const;
};

struct Evaluation {
  std::string directory;  // of the weights
  std::int64_t sequence_length = 0, stride = 0;
  std::vector<EvaluationRow> rows;  // by source and part
  std::vector<EvaluationRow> sums;  // by part, where there are several sources
};

struct EvaluationHooks {
  TokenizingOptions tokenizing = {};
  std::function<void(const std::string&)> tell = {};  // a line for people
  // Of the tokens; on rank 0.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

// In the layout that the overrides say, in this process or under MPI between launch.start->join()
// and finish(). RequestError with all problems; nothing is written but the cache of tokens. The
// rows are the same on all ranks, but for their bytes, which are rank 0's.
Evaluation evaluate(const EvaluationRequest&, const Launch&, const EvaluationHooks&);

}  // namespace trident
