// Rows of the field table: number types, optimizer, data, length of the run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "settings/field_rows.h"

namespace trident::config_detail {
namespace {

template <class T>
Member<T> in_params(T OptimizerParams::*member) {
  return [=](Config& config) -> T& { return config.optimizer.params.*member; };
}

Member<std::string> in_tokenizer(std::string TokenizerConfig::*member) {
  return [=](Config& config) -> std::string& { return config.data.tokenizer.*member; };
}

// "AdamW, Adam: TEXT" with the optimizers that read a parameter.
Text of_optimizers(bool OptimizerConstraints::*reads, const char* text) {
  return [=](const ConfigConstraints& constraints) {
    return fmt::format("{}: {}", fmt::join(names_where(constraints.optimizers, reads), ", "), text);
  };
}

std::string weight_decay_text(const ConfigConstraints& constraints) {
  std::string text;
  for (const OptimizerConstraints& optimizer : constraints.optimizers) {
    if (optimizer.weight_decay == 0) continue;
    text += fmt::format("{} for {}, ", optimizer.weight_decay, optimizer.name);
  }
  return text + (text.empty() ? "0" : "else 0");
}

}  // namespace

std::vector<Field> precision_fields() {
  const auto member = [](auto m) { return in(&Config::precision, m); };
  using P = PrecisionConfig;
  return {
      {.path = "/precision/dtype",
       .member = member(&P::dtype),
       .doc = "Type of weights and activations in forward and backward; the master weights and "
              "the optimizer's state are fp32.",
       .choices = {{"fp32"}, {"bf16"}, {"fp16"}}},
      {.path = "/precision/tf32",
       .member = member(&P::tf32),
       .doc = "dtype fp32 on a GPU: products round their operands to TF32, for its tensor cores. "
              "The CPU's products stay fp32."},
      {.path = "/precision/grad_accum_dtype",
       .member = member(&P::grad_accum_dtype),
       .doc = "Type in which gradients are added up and reduced: fp32, or that of dtype.",
       .choices = {{"fp32"}, {"bf16"}, {"fp16"}}},
      {.path = "/precision/loss_scale",
       .member = member(&P::loss_scale),
       .doc = "fp16: a fixed factor of the loss; 0 adapts it.",
       .range = from(0, 0x1p64)},
      {.path = "/precision/initial_scale_power",
       .member = member(&P::initial_scale_power),
       .doc = "fp16: the adaptive loss scale begins at 2 to this power.",
       .range = from(0, 64)},
      {.path = "/precision/loss_scale_window",
       .member = member(&P::loss_scale_window),
       .doc = "fp16: steps without overflow before the loss scale doubles.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
      {.path = "/precision/hysteresis",
       .member = member(&P::hysteresis),
       .doc = "fp16: overflows before the loss scale halves.",
       .range = from(1, 1e6)},
      {.path = "/precision/min_loss_scale",
       .member = member(&P::min_loss_scale),
       .doc = "fp16: the adaptive loss scale stays at or above this.",
       .range = from(0x1p-64, 0x1p64)},
  };
}

std::vector<Field> activation_checkpointing_fields() {
  const auto member = [](auto m) { return in(&Config::activation_checkpointing, m); };
  using A = ActivationCheckpointingConfig;
  return {
      {.path = "/activation_checkpointing/granularity",
       .member = member(&A::granularity),
       .doc = "The activations that backward recomputes instead of keeping them.",
       .choices = {{"none"}, {"selective"}, {"full"}}},
      {.path = "/activation_checkpointing/num_layers",
       .member = member(&A::num_layers),
       .doc = "full: layers that are recomputed as one unit.",
       .unit = "layers",
       .range = from(1, 1e5)},
  };
}

std::vector<Field> optimizer_fields() {
  using P = OptimizerParams;
  return {
      {.path = "/optimizer/type",
       .member = in(&Config::optimizer, &OptimizerConfig::type),
       .doc = described("", &ConfigConstraints::optimizers, ", ", ", or ", "."),
       .kinds =
           [](const ConfigConstraints& constraints) { return names_of(constraints.optimizers); }},
      {.path = "/optimizer/params/lr",
       .member = in_params(&P::lr),
       .doc = "Largest learning rate; `scheduler` changes it over time.",
       .range = fp32_or_zero()},
      {.path = "/optimizer/params/betas",
       .member = in_params(&P::betas),
       .doc = of_optimizers(&OptimizerConstraints::betas,
                            "decay rates of the gradient's running mean and mean square."),
       .range = fp32_fraction()},
      {.path = "/optimizer/params/eps",
       .member = in_params(&P::eps),
       .doc = of_optimizers(&OptimizerConstraints::eps,
                            "added to the square root in the denominator."),
       .range = fp32()},
      {.path = "/optimizer/params/weight_decay",
       .member = in_params(&P::weight_decay),
       .doc = "Weight decay of parameters of two or more dimensions, norms and biases aside.",
       .range = fp32_or_zero(),
       .derived = weight_decay_text},
      {.path = "/optimizer/params/momentum",
       .member = in_params(&P::momentum),
       .doc = of_optimizers(&OptimizerConstraints::momentum, "momentum."),
       .range = fp32_fraction()},
      {.path = "/optimizer/param_groups",
       .member = in(&Config::optimizer, &OptimizerConfig::param_groups),
       .doc = "Parameters with a rate or a weight decay of their own: a list of `{\"params\": "
              "\"*.bias\", \"lr_mult\": 1, \"weight_decay\": 0}`. `params` is a pattern (`*`, `?`, "
              "`[…]`) of the names that the weights have in checkpoints, such as "
              "layers.0.attention.qkv.weight; `lr_mult` multiplies the learning rate, "
              "`weight_decay`, where it is given, applies to all that match. The first group that "
              "matches a name counts; each has to match one.",
       .range = fp32_or_zero()},
      {.path = "/gradient_clipping",
       .member = Member<double>([](Config& c) -> double& { return c.gradient_clipping; }),
       .doc = "Gradients are scaled down where their global norm exceeds this; 0: never.",
       .range = fp32_or_zero()},
  };
}

std::vector<Field> scheduler_fields() {
  const auto member = [](auto m) { return in(&Config::scheduler, m); };
  using S = LrSchedulerConfig;
  return {
      {.path = "/scheduler/type",
       .member = member(&S::type),
       .doc = "Course of the learning rate after warm-up, with t from 0 to 1 up to decay_iters: "
              "linear min + (lr − min)(1 − t), cosine min + (lr − min)(1 + cos πt)/2, "
              "cosine_with_restarts num_cycles such cosines one after the other, wsd lr until the "
              "last wsd_decay_iters of decay_iters and then down to min, polynomial "
              "min + (lr − min)(1 − t)^power, exponential min + (lr − min) · gamma^t, piecewise "
              "lr · gamma^(milestones passed), not below min.",
       .choices = {{"constant"},
                   {"linear"},
                   {"cosine"},
                   {"cosine_with_restarts"},
                   {"wsd"},
                   {"polynomial"},
                   {"exponential"},
                   {"piecewise"}}},
      {.path = "/scheduler/warmup_iters",
       .member = member(&S::warmup_iters),
       .doc = "The learning rate rises linearly over this many iterations.",
       .unit = "iterations",
       .range = from(0, kMaxIterations)},
      {.path = "/scheduler/warmup_ratio",
       .member = member(&S::warmup_ratio),
       .doc = "The warm-up as a part of train_iters, in place of warmup_iters.",
       .range = fraction()},
      {.path = "/scheduler/decay_iters",
       .member = member(&S::decay_iters),
       .doc = "Iteration at which the learning rate has come down, warm-up counted in.",
       .unit = "iterations",
       .range = from(1, kMaxIterations),
       .derived = "training.train_iters"},
      {.path = "/scheduler/min_lr",
       .member = member(&S::min_lr),
       .doc = "Learning rate at the end; not above optimizer.params.lr.",
       .range = fp32_or_zero()},
      {.path = "/scheduler/power",
       .member = member(&S::power),
       .doc = "polynomial: the exponent.",
       .range = above(0)},
      {.path = "/scheduler/gamma",
       .member = member(&S::gamma),
       .doc = "exponential: the factor reached at decay_iters; piecewise: the factor at each "
              "milestone.",
       .range = {.min = 0.0, .max = 1.0, .above_min = true}},
      {.path = "/scheduler/milestones",
       .member = member(&S::milestones),
       .doc = "piecewise: iterations after which the learning rate falls, ascending.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
      {.path = "/scheduler/num_cycles",
       .member = member(&S::num_cycles),
       .doc = "cosine_with_restarts: cosines between warm-up and decay_iters, each of at least two "
              "iterations, of which the last has min_lr.",
       .range = from(1, 1e6)},
      {.path = "/scheduler/cycle_mult",
       .member = member(&S::cycle_mult),
       .doc = "cosine_with_restarts: each cosine is this many times as long as the one before.",
       .range = from(1, 1e3)},
      {.path = "/scheduler/wsd_decay_iters",
       .member = member(&S::wsd_decay_iters),
       .doc = "wsd: iterations over which the learning rate comes down, the last ones of "
              "decay_iters.",
       .unit = "iterations",
       .range = from(1, kMaxIterations),
       .derived = "a tenth of decay_iters, at most what warm-up leaves of them"},
      {.path = "/scheduler/wsd_decay_style",
       .member = member(&S::wsd_decay_style),
       .doc = "wsd: how the learning rate comes down, with t from 0 to 1 over these iterations: "
              "linear and cosine as above, exponential min + (lr − min)(2 · 0.5^t − 1), minus_sqrt "
              "min + (lr − min)(1 − √t).",
       .choices = {{"linear"}, {"cosine"}, {"exponential"}, {"minus_sqrt"}}},
  };
}

std::vector<Field> data_fields() {
  const auto member = [](auto m) { return in(&Config::data, m); };
  using D = DataConfig;
  return {
      {.path = "/data/train",
       .member = member(&D::train),
       .doc = "Sources to train on: a list of `{\"path\": …, \"weight\": 1}`. A path is a file of "
              "text, .jsonl or .parquet, those of text also as .gz or .zst, a folder of these, a "
              "pattern such as data/*.txt, or the common prefix of a .bin/.idx pair of tokens; "
              "weights say how often a source is drawn from, relative to the others.",
       .required = true},
      {.path = "/data/validation",
       .member = member(&D::validation),
       .doc = "Sources to evaluate on: a list as in `train`, or an object of named lists, each "
              "evaluated by itself.",
       .derived = "none"},
      {.path = "/data/split",
       .member = member(&D::split),
       .doc = "Splits the training sources in stream order into training, validation and test "
              "parts of these relative sizes, such as \"949,50,1\"; in place of `validation`.",
       .derived = "none"},
      {.path = "/data/tokenizer/type",
       .member = in_tokenizer(&TokenizerConfig::type),
       .doc = "byte: every byte of the text is a token, 256 ids; file: texts become tokens by the "
              "tokenizer.json at `path`, and .bin/.idx pairs have been made with it.",
       .choices = {{"byte"}, {"file"}}},
      {.path = "/data/tokenizer/path",
       .member = in_tokenizer(&TokenizerConfig::path),
       .doc = "The tokenizer.json of type \"file\", or the folder that holds it; saved along with "
              "the weights.",
       .derived = "none"},
      {.path = "/data/tokenizer/errors",
       .member = in_tokenizer(&TokenizerConfig::errors),
       .doc = "Handling of text that isn't UTF-8. strict: an error with file and line; replace: "
              "U+FFFD. The byte tokenizer takes anything.",
       .choices = {{"strict"}, {"replace"}}},
      {.path = "/data/tokenizer/eos_token",
       .member = in_tokenizer(&TokenizerConfig::eos_token),
       .doc = "The token that ends a text.",
       .derived =
           "eos_token in the tokenizer_config.json next to `path`, else one of the usual names"},
      {.path = "/data/json_key",
       .member = member(&D::json_key),
       .doc = "The key of a document's text in .jsonl, and its column in .parquet."},
      {.path = "/data/append_eod",
       .member = member(&D::append_eod),
       .doc = "Ends each document of a text with tokenizer.eos_token; the byte tokenizer, which "
              "has no such token, adds a line end where there is none."},
      {.path = "/data/cache_path",
       .member = member(&D::cache_path),
       .doc = "Folder that keeps the tokens of texts, which are found by their contents."},
      {.path = "/data/sequence_length",
       .member = member(&D::sequence_length),
       .doc = "Inputs of one sample; each is followed by its label.",
       .unit = "tokens",
       .range = from(1, 1e7),
       .derived = "model.max_position_embeddings"},
      {.path = "/data/shuffle",
       .member = member(&D::shuffle),
       .doc = "Draws the samples of each epoch in an order that depends on `seed` alone."},
      {.path = "/data/seed",
       .member = member(&D::seed),
       .doc = "Seed of the order of samples.",
       .range = from(0, 9007199254740991.0)},
      {.path = "/data/reset_attention_mask",
       .member = member(&D::reset_attention_mask),
       .doc =
           "Attention doesn't look beyond the beginning of a document. Documents are those of the "
           "source; where it is one document, each ends with the end of text."},
      {.path = "/data/reset_position_ids",
       .member = member(&D::reset_position_ids),
       .doc = "Positions begin anew at each document."},
      {.path = "/data/eod_mask_loss",
       .member = member(&D::eod_mask_loss),
       .doc =
           "The last token of a document doesn't count in the loss: its label is the first token "
           "of the next one. The mean is over the labels that count in the global batch; a batch "
           "without one is skipped."},
      {.path = "/data/packing",
       .member = member(&D::packing),
       .doc =
           "concatenate: a sample is a range of the stream; best_fit: documents are packed into "
           "samples, longer ones cut, and the room that is left is padding, which doesn't count.",
       .choices = {{"concatenate"}, {"best_fit"}}},
      {.path = "/data/packing_window",
       .member = member(&D::packing_window),
       .doc = "The number of consecutive documents that best_fit packs together.",
       .unit = "documents",
       .range = from(1, 1e6)},
  };
}

std::vector<Field> training_fields() {
  const auto member = [](auto m) { return in(&Config::training, m); };
  using T = TrainingConfig;
  return {
      {.path = "/training/train_iters",
       .member = member(&T::train_iters),
       .doc = "Steps of the whole run; this or train_epochs.",
       .unit = "iterations",
       .range = from(1, kMaxIterations),
       .derived = "from train_epochs"},
      {.path = "/training/train_epochs",
       .member = member(&T::train_epochs),
       .doc = "Passes over the training data, in place of train_iters.",
       .unit = "epochs",
       .range = from(1, 1e6),
       .derived = "1 where train_iters isn't given"},
      {.path = "/training/seed",
       .member = member(&T::seed),
       .doc = "Seed of initial weights and dropout.",
       .range = from(0, 9007199254740991.0)},
      {.path = "/training/eval_interval",
       .member = member(&T::eval_interval),
       .doc = "Evaluates each time this many iterations have passed, and after the last; 0: only "
              "after the last.",
       .unit = "iterations",
       .range = from(0, kMaxIterations)},
      {.path = "/training/eval_iters",
       .member = member(&T::eval_iters),
       .doc = "Global batches of each evaluation.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
      {.path = "/training/deterministic",
       .member = member(&T::deterministic),
       .doc = "Adds in a fixed order everywhere, so that the same config gives the same bits.",
       .derived = "true on the CPU"},
      {.path = "/training/label_smoothing",
       .member = member(&T::label_smoothing),
       .doc = "Part of the label's probability that is spread over the whole vocabulary.",
       .range = fp32_fraction()},
      {.path = "/training/ema_decay",
       .member = member(&T::ema_decay),
       .doc = "Keeps a moving average of the weights, average := ema_decay · average + "
              "(1 − ema_decay) · weights after each update, from the first one's on, or from "
              "the weights of a checkpoint that has none; it is saved as weights of their own in "
              "the folder ema of checkpoint.save. 0: none is kept.",
       .range = fp32_fraction()},
      {.path = "/training/on_non_finite",
       .member = member(&T::on_non_finite),
       .doc = "On a loss or gradient that is not finite: stop every rank before the step, or skip "
              "the step on all.",
       .choices = {{"stop"}, {"skip"}}},
      {.path = "/training/max_skipped_steps",
       .member = member(&T::max_skipped_steps),
       .doc =
           "With on_non_finite \"skip\": the run ends with an error when this many steps in a row "
           "were skipped. Steps that are skipped because an fp16 loss scale has to fall don't "
           "count.",
       .unit = "steps",
       .range = from(1, kMaxIterations)},
  };
}

}  // namespace trident::config_detail
