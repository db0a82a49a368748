// The field table: the one place that knows a key's path, range, choices and meaning.
#include "config/fields.h"

namespace trident::config_detail {
namespace {

template <class S, class T>
Member<T> in(S Config::*section, T S::*member) {
  return [=](Config& config) -> T& { return config.*section.*member; };
}

template <class T>
Member<T> in_params(T OptimizerParams::*member) {
  return [=](Config& config) -> T& { return config.optimizer.params.*member; };
}

Member<std::string> in_tokenizer(std::string TokenizerConfig::*member) {
  return [=](Config& config) -> std::string& { return config.data.tokenizer.*member; };
}

// The largest values keep every product of sizes in the checks within 64 bits.
constexpr double kMaxRanks = 1e6;
constexpr double kMaxIterations = 1e12;

Range from(double min, double max) {
  return {.min = min, .max = max};
}
Range above(double min) {
  return {.min = min, .above_min = true};
}
Range fraction() {
  return {.min = 0.0, .max = 1.0, .below_max = true};
}

// Numbers that kernels take as fp32 stay within its normal ones, in round figures: a smaller one
// would be 0 there, a larger one infinite, and one nearer to 1 would be 1.
constexpr double kLeast = 1.2e-38, kMost = 3.4e38, kBelowOne = 0.9999999;

Range fp32() {
  return {.min = kLeast, .max = kMost};
}
Range fp32_or_zero() {
  return {.min = kLeast, .max = kMost, .or_zero = true};
}
Range fp32_fraction() {
  return {.min = kLeast, .max = kBelowOne, .or_zero = true};
}

std::vector<Field> model_fields() {
  const auto member = [](auto m) { return in(&Config::model, m); };
  using M = ModelConfig;
  return {
      {.path = "/model/architecture",
       .member = member(&M::architecture),
       .doc = "Which model: gpt2 has learned positions, LayerNorm and GELU; llama has rotary "
              "positions, RMSNorm, SwiGLU and grouped queries. A program that links the library "
              "can add its own."},
      {.path = "/model/num_layers",
       .member = member(&M::num_layers),
       .doc = "Transformer layers.",
       .range = from(1, 1e5),
       .required = true},
      {.path = "/model/hidden_size",
       .member = member(&M::hidden_size),
       .doc = "Width of the residual stream; a multiple of num_attention_heads.",
       .range = from(1, 1e7),
       .required = true},
      {.path = "/model/num_attention_heads",
       .member = member(&M::num_attention_heads),
       .doc = "Attention heads; llama's rotary positions need hidden_size / num_attention_heads "
              "to be even.",
       .range = from(1, 1e6),
       .required = true},
      {.path = "/model/num_query_groups",
       .member = member(&M::num_query_groups),
       .doc = "Key and value heads, each shared by num_attention_heads / num_query_groups query "
              "heads (llama).",
       .range = from(1, 1e6),
       .derived = "num_attention_heads"},
      {.path = "/model/ffn_hidden_size",
       .member = member(&M::ffn_hidden_size),
       .doc = "Inner width of the MLP.",
       .range = from(1, 1e8),
       .derived = "4 · hidden_size; must be given for llama"},
      {.path = "/model/max_position_embeddings",
       .member = member(&M::max_position_embeddings),
       .doc = "Longest sequence that the model takes; the rows of gpt2's position table.",
       .unit = "tokens",
       .range = from(1, 1e8),
       .derived = "data.sequence_length"},
      {.path = "/model/vocab_size",
       .member = member(&M::vocab_size),
       .doc = "Token ids that the model knows, padding not counted.",
       .range = from(1, 1e9),
       .derived = "256 for text files; must be given for .bin/.idx pairs of tokens and for "
                  "tokenizer \"file\""},
      {.path = "/model/make_vocab_size_divisible_by",
       .member = member(&M::make_vocab_size_divisible_by),
       .doc = "The vocabulary is padded to a multiple of this times tensor_model_parallel_size. "
              "The padding changes no loss, gradient or exported weight.",
       .range = from(1, 1e6)},
      {.path = "/model/tie_word_embeddings",
       .member = member(&M::tie_word_embeddings),
       .doc = "The output layer uses the word embeddings' weight.",
       .derived = "false for llama, else true"},
      {.path = "/model/norm_epsilon",
       .member = member(&M::norm_epsilon),
       .doc = "Added to the variance in LayerNorm and RMSNorm.",
       .range = fp32()},
      {.path = "/model/rotary_base",
       .member = member(&M::rotary_base),
       .doc = "Base of the rotary positions' wavelengths (llama).",
       .range = {.min = 1.0000002, .max = kMost}},
      {.path = "/model/init_method_std",
       .member = member(&M::init_method_std),
       .doc = "Standard deviation of the initial weights; projections back into the residual "
              "stream get it divided by √(2 · num_layers).",
       .range = fp32()},
      {.path = "/model/hidden_dropout",
       .member = member(&M::hidden_dropout),
       .doc = "Dropout after the embedding, the attention and the MLP.",
       .range = fp32_fraction()},
      {.path = "/model/attention_dropout",
       .member = member(&M::attention_dropout),
       .doc = "Dropout of the attention probabilities.",
       .range = fp32_fraction()},
  };
}

std::vector<Field> parallel_fields() {
  const auto member = [](auto m) { return in(&Config::parallel, m); };
  using P = ParallelConfig;
  return {
      {.path = "/parallel/data_parallel_size",
       .member = member(&P::data_parallel_size),
       .doc = "Replicas of the model; \"auto\" takes as many as the ranks that run allow "
              "(`--ranks N`, or the size of the MPI world).",
       .unit = "ranks",
       .range = from(1, kMaxRanks),
       .choices = {{"auto"}},
       .derived = "\"auto\" where the number of ranks is known, else 1"},
      {.path = "/parallel/tensor_model_parallel_size",
       .member = member(&P::tensor_model_parallel_size),
       .doc = "Ranks that share each layer; divides num_attention_heads, num_query_groups and "
              "ffn_hidden_size.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/pipeline_model_parallel_size",
       .member = member(&P::pipeline_model_parallel_size),
       .doc = "Ranks that a micro-batch passes one after the other.",
       .unit = "ranks",
       .range = from(1, kMaxRanks)},
      {.path = "/parallel/virtual_pipeline_model_parallel_size",
       .member = member(&P::virtual_pipeline_model_parallel_size),
       .doc = "Chunks of the model on each pipeline rank; more than one needs a schedule that "
              "interleaves them.",
       .unit = "chunks",
       .range = from(1, 1e5),
       .derived = "2 where the schedule is given and needs several, else 1"},
      {.path = "/parallel/sequence_parallel",
       .member = member(&P::sequence_parallel),
       .doc = "Shards the activations between the tensor-parallel parts over the tensor ranks "
              "(reduce-scatter and all-gather in place of all-reduce)."},
      {.path = "/parallel/tp_comm_overlap",
       .member = member(&P::tp_comm_overlap),
       .doc = "With sequence_parallel: gathers and reductions go a tensor rank's rows at a time, "
              "beside the products of the rows that are there."},
      {.path = "/parallel/rank_order",
       .member = member(&P::rank_order),
       .doc = "How ranks are numbered: the axes tp, dp, pp joined by dashes, the one that "
              "neighbouring ranks differ in first."},
  };
}

std::vector<Field> pipeline_fields() {
  const auto member = [](auto m) { return in(&Config::pipeline, m); };
  using P = PipelineConfig;
  return {
      {.path = "/pipeline/schedule",
       .member = member(&P::schedule),
       .doc = "The order of forwards and backwards on each pipeline rank.",
       .choices = {{"naive"},
                   {"gpipe"},
                   {"1f1b"},
                   {"interleaved_1f1b"},
                   {"looped_bfs"},
                   {"zb_h1"},
                   {"zb_h2"},
                   {"interleaved_zero_bubble"},
                   {"zbv"},
                   {"dualpipev"},
                   {"pipedream"},
                   {"pipedream_2bw"},
                   {"auto"}},
       .derived = "\"interleaved_1f1b\" with several chunks, else \"1f1b\""},
      {.path = "/pipeline/schedule_file",
       .member = member(&P::schedule_file),
       .doc = "A schedule of your own as CSV (`trident schedule --format csv` writes the form). "
              "It has to be a schedule that is flushed; `schedule` is then not looked at.",
       .derived = "none"},
      {.path = "/pipeline/microbatch_group_size_per_vp_stage",
       .member = member(&P::microbatch_group_size_per_vp_stage),
       .doc = "Micro-batches that the interleaved schedules run through one chunk before they turn "
              "to the next.",
       .unit = "micro-batches",
       .range = from(1, 1e6),
       .derived = "the pipeline size p where it divides the micro-batches m, else m / ⌊m/p⌋"},
      {.path = "/pipeline/layer_split",
       .member = member(&P::layer_split),
       .doc = "Layers of each stage: a list in stage order, one number for each chunk of each "
              "pipeline rank; \"even\", which gives the remainder to the earliest stages; or "
              "\"auto\", which gives the busiest rank as little as can be, by FLOPs with embedding "
              "and head.",
       .unit = "layers",
       .range = from(1, 1e5),
       .choices = {{"even"}, {"auto"}},
       .derived = "\"even\""},
  };
}

std::vector<Field> batch_fields() {
  const auto member = [](auto m) { return in(&Config::batch, m); };
  using B = BatchConfig;
  return {
      {.path = "/batch/global_batch_size",
       .member = member(&B::global_batch_size),
       .doc = "Sequences of one step over all ranks: micro_batch_size × "
              "gradient_accumulation_steps × data_parallel_size.",
       .unit = "sequences",
       .range = from(1, 1e9),
       .derived = "the product; this or micro_batch_size must be given"},
      {.path = "/batch/micro_batch_size",
       .member = member(&B::micro_batch_size),
       .doc = "Sequences that pass the model at once; \"auto\": the most that fit the machine's "
              "memory, of those that divide a replica's part of global_batch_size.",
       .unit = "sequences",
       .range = from(1, 1e6),
       .choices = {{"auto"}},
       .derived = "global_batch_size / (gradient_accumulation_steps × data_parallel_size)"},
      {.path = "/batch/gradient_accumulation_steps",
       .member = member(&B::gradient_accumulation_steps),
       .doc = "Micro-batches that each replica runs before the weights change; what the pipeline "
              "is filled with.",
       .unit = "micro-batches",
       .range = from(1, 1e6),
       .derived = "global_batch_size / (micro_batch_size × data_parallel_size), 1 where only one "
                  "of them is given"},
  };
}

std::vector<Field> zero_fields() {
  const auto member = [](auto m) { return in(&Config::zero_optimization, m); };
  using Z = ZeroConfig;
  return {
      {.path = "/zero_optimization/stage",
       .member = member(&Z::stage),
       .doc = "What the data-parallel ranks share out: 0 nothing, 1 the optimizer's state, 2 the "
              "gradients too, 3 the weights too.",
       .range = from(0, 3)},
      {.path = "/zero_optimization/reduce_bucket_size",
       .member = member(&Z::reduce_bucket_size),
       .doc = "Gradients are reduced in buckets of about this size.",
       .unit = "elements",
       .range = from(1, 1e12)},
      {.path = "/zero_optimization/allgather_bucket_size",
       .member = member(&Z::allgather_bucket_size),
       .doc = "Updated weights are gathered in buckets of about this size (stage 1 and above).",
       .unit = "elements",
       .range = from(1, 1e12)},
      {.path = "/zero_optimization/overlap_comm",
       .member = member(&Z::overlap_comm),
       .doc = "Reduces full buckets while the backward pass goes on."},
      {.path = "/zero_optimization/reduce_each_micro_batch",
       .member = member(&Z::reduce_each_micro_batch),
       .doc = "Reduces gradients after each micro-batch, not once a step: stages 2 and 3 then hold "
              "no whole gradients between micro-batches, but send them for each.",
       .derived = "true for stages 2 and 3, else false"},
      {.path = "/zero_optimization/stage3_prefetch_bucket_size",
       .member = member(&Z::stage3_prefetch_bucket_size),
       .doc = "Stage 3: the next layer's weights are gathered ahead of their use, up to this many.",
       .unit = "elements",
       .range = from(0, 1e12)},
      {.path = "/zero_optimization/stage3_param_persistence_threshold",
       .member = member(&Z::stage3_param_persistence_threshold),
       .doc = "Stage 3: parameters smaller than this stay whole on every rank.",
       .unit = "elements",
       .range = from(0, 1e12)},
  };
}

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
       .doc = "What backward computes again instead of keeping it.",
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
       .doc = "AdamW (decoupled weight decay), Adam (decay added to the gradient), SGD with "
              "momentum, or Adafactor (factored second moment, update clipping and rates relative "
              "to the weights, as torch.optim.Adafactor); other decay than Adam's is decoupled.",
       .choices = {{"AdamW"}, {"Adam"}, {"SGD"}, {"Adafactor"}}},
      {.path = "/optimizer/params/lr",
       .member = in_params(&P::lr),
       .doc = "Largest learning rate; `scheduler` changes it over time.",
       .range = fp32_or_zero()},
      {.path = "/optimizer/params/betas",
       .member = in_params(&P::betas),
       .doc = "AdamW, Adam: decay rates of the gradient's running mean and mean square.",
       .range = fp32_fraction()},
      {.path = "/optimizer/params/eps",
       .member = in_params(&P::eps),
       .doc = "AdamW, Adam: added to the square root in the denominator.",
       .range = fp32()},
      {.path = "/optimizer/params/weight_decay",
       .member = in_params(&P::weight_decay),
       .doc = "Weight decay of parameters of two or more dimensions.",
       .range = fp32_or_zero(),
       .derived = "0.01 for AdamW, else 0"},
      {.path = "/optimizer/params/momentum",
       .member = in_params(&P::momentum),
       .doc = "SGD: momentum.",
       .range = fp32_fraction()},
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
              "linear min + (lr − min)(1 − t), cosine min + (lr − min)(1 + cos πt)/2, polynomial "
              "min + (lr − min)(1 − t)^power, exponential min + (lr − min) · gamma^t, piecewise "
              "lr · gamma^(milestones passed), not below min.",
       .choices =
           {{"constant"}, {"linear"}, {"cosine"}, {"polynomial"}, {"exponential"}, {"piecewise"}}},
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
  };
}

std::vector<Field> data_fields() {
  const auto member = [](auto m) { return in(&Config::data, m); };
  using D = DataConfig;
  return {
      {.path = "/data/train",
       .member = member(&D::train),
       .doc = "Sources to train on: a list of `{\"path\": …, \"weight\": 1}`. A path is a text "
              "file, or the common prefix of a .bin/.idx pair of tokens; weights say how often a "
              "source is drawn from, relative to the others.",
       .required = true},
      {.path = "/data/validation",
       .member = member(&D::validation),
       .doc = "Sources to evaluate on: a list as in `train`, or an object of named lists, each "
              "evaluated by itself.",
       .derived = "none"},
      {.path = "/data/split",
       .member = member(&D::split),
       .doc = "Cuts the training sources in stream order into training, validation and test "
              "parts of these relative sizes, such as \"949,50,1\"; in place of `validation`.",
       .derived = "none"},
      {.path = "/data/tokenizer/type",
       .member = in_tokenizer(&TokenizerConfig::type),
       .doc = "byte: every byte of the text is a token, 256 ids; file: the sources are .bin/.idx "
              "tokens made by scripts/tokenize_corpus.py with the tokenizer.json at `path`.",
       .choices = {{"byte"}, {"file"}}},
      {.path = "/data/tokenizer/path",
       .member = in_tokenizer(&TokenizerConfig::path),
       .doc = "The tokenizer.json of type \"file\"; saved along with the weights.",
       .derived = "none"},
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
       .doc = "Evaluates after every so many iterations, and after the last; 0: only after the "
              "last.",
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

std::vector<Field> checkpoint_fields() {
  const auto member = [](auto m) { return in(&Config::checkpoint, m); };
  using C = CheckpointConfig;
  const std::string later = "checkpoints";
  return {
      {.path = "/checkpoint/load",
       .member = member(&C::load),
       .doc = "Hugging Face directory to take the initial weights from. (\"auto\", the newest "
              "checkpoint under `save`, is not available yet.)",
       .derived = "none"},
      {.path = "/checkpoint/resume",
       .member = member(&C::resume),
       .doc =
           "Whether to go on from the newest checkpoint under `save`: auto where there is one, "
           "never, or must. This version makes none and reads none: with auto, one that is there "
           "is refused.",
       .choices = {{"auto"}, {"must", later}, {"never"}}},
      {.path = "/checkpoint/save",
       .member = member(&C::save),
       .doc = "Directory that gets the final weights, in Hugging Face's format.",
       .derived = "none"},
      {.path = "/checkpoint/overwrite",
       .member = member(&C::overwrite),
       .doc = "Replaces weights in `save` that are not of the run in `logging.dir`; refused "
              "otherwise."},
      {.path = "/checkpoint/save_interval",
       .member = member(&C::save_interval),
       .doc = "Saves a checkpoint after every so many iterations; 0: never.",
       .unit = "iterations",
       .range = from(0, kMaxIterations),
       .later = later},
      {.path = "/checkpoint/save_total_limit",
       .member = member(&C::save_total_limit),
       .doc = "Checkpoints that are kept; 0: all.",
       .range = from(0, 1e6),
       .later = later},
      {.path = "/checkpoint/keep_best",
       .member = member(&C::keep_best),
       .doc = "Also keeps the checkpoint with the least validation loss.",
       .later = later},
      {.path = "/checkpoint/asynchronous",
       .member = member(&C::asynchronous),
       .doc = "Writes checkpoints while training goes on.",
       .later = later},
  };
}

std::vector<Field> runtime_fields() {
  const auto member = [](auto m) { return in(&Config::runtime, m); };
  using R = RuntimeConfig;
  return {
      {.path = "/runtime/device",
       .member = member(&R::device),
       .doc = "Where the ranks compute: on the CPU, or on this machine's GPUs in turn; \"auto\" is "
              "a GPU where there is one that the transport serves, else the CPU.",
       .choices = {{"cpu"}, {"cuda"}, {"auto"}}},
      {.path = "/runtime/transport",
       .member = member(&R::transport),
       .doc =
           "How ranks talk: local runs all of them as threads of one process, mpi one rank a "
           "process that mpirun or srun has started, nccl either way with a GPU for each rank; "
           "\"auto\" is mpi (of GPUs nccl) under mpirun or srun, else nccl where each of several "
           "ranks has a GPU, else local.",
       .choices = {{"auto"}, {"local"}, {"mpi"}, {"nccl"}}},
      {.path = "/runtime/ranks_per_node",
       .member = member(&R::ranks_per_node),
       .doc = "Plays nodes inside hosts: so many consecutive ranks count as one, for the groups "
              "inside and across nodes. Left out, nodes are hosts, of equal size or not; given, "
              "it has to cut hosts into whole nodes.",
       .unit = "ranks",
       .range = from(1, kMaxRanks),
       .derived = "hosts, as the transport finds them"},
      {.path = "/runtime/threads_per_rank",
       .member = member(&R::threads_per_rank),
       .doc = "Compute threads of each rank; \"auto\" shares the machine's cores out evenly.",
       .unit = "threads",
       .range = from(1, 4096),
       .choices = {{"auto"}},
       .derived = "\"auto\""},
      {.path = "/runtime/timeout_seconds",
       .member = member(&R::timeout_seconds),
       .doc = "A rank that a collective has waited for this long ends the run with an error.",
       .unit = "seconds",
       .range = from(0.001, 1e6)},
      {.path = "/runtime/collective_algorithm",
       .member = member(&R::collective_algorithm),
       .doc = "How all-reduce is done. \"auto\" is direct where training.deterministic is set, "
              "else chosen by size; ring and tree don't add in rank order, so above 2 ranks they "
              "need training.deterministic false.",
       .choices = {{"auto"}, {"direct"}, {"ring"}, {"tree"}}},
  };
}

std::vector<Field> logging_fields() {
  const auto member = [](auto m) { return in(&Config::logging, m); };
  using L = LoggingConfig;
  return {
      {.path = "/logging/dir",
       .member = member(&L::dir),
       .doc = "Directory of the run's files (metrics.jsonl, timeline.svg, trace.json, "
              "config.json, config.user.json, report.html).",
       .derived = "runs/ and the config file's name without .json"},
      {.path = "/logging/overwrite",
       .member = member(&L::overwrite),
       .doc = "Replaces the files of an earlier run in `dir`, which is refused otherwise: its "
              "metrics, TensorBoard events, pictures, report and gradients go, other files stay."},
      {.path = "/logging/log_interval",
       .member = member(&L::log_interval),
       .doc =
           "Iterations from one progress line to the next; the first, the last and evaluated ones "
           "are shown as well. metrics.jsonl and TensorBoard have every iteration.",
       .unit = "iterations",
       .range = from(1, kMaxIterations),
       .derived = "1 on a terminal, where the line is drawn anew; elsewhere a line in five "
                  "seconds"},
      {.path = "/logging/tensorboard",
       .member = member(&L::tensorboard),
       .doc = "Also writes the metrics as TensorBoard events."},
      {.path = "/logging/trace",
       .member = member(&L::trace),
       .doc = "Records one iteration as timeline.svg and trace.json."},
      {.path = "/logging/dump_gradients_at",
       .member = member(&L::dump_gradients_at),
       .doc = "Iterations whose whole gradients are written to gradients-<iteration>.safetensors, "
              "before clipping.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
  };
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> all;
    for (auto part : {model_fields(), parallel_fields(), pipeline_fields(), batch_fields(),
                      zero_fields(), precision_fields(), activation_checkpointing_fields(),
                      optimizer_fields(), scheduler_fields(), data_fields(), training_fields(),
                      checkpoint_fields(), runtime_fields(), logging_fields()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

const std::vector<Section>& sections() {
  static const std::vector<Section> table = {
      {"/model", "The transformer."},
      {"/parallel", "How the model and the batch are laid out over the ranks."},
      {"/pipeline", "What each pipeline rank runs when, and which layers it holds."},
      {"/batch", "Batch sizes. Any that is left out is derived; their product is checked."},
      {"/zero_optimization", "What data-parallel ranks share out instead of each keeping a copy."},
      {"/precision", "Number types."},
      {"/activation_checkpointing", "Trading computation for activation memory."},
      {"/optimizer", "The optimizer."},
      {"/optimizer/params", "The optimizer's numbers."},
      {"", "At the top level of the file."},
      {"/scheduler", "The learning rate over time. Iteration k counts from 1."},
      {"/data", "What is learned."},
      {"/data/tokenizer", "How text becomes tokens."},
      {"/training", "Length of the run, evaluation, reproducibility."},
      {"/checkpoint", "Weights that are read and written."},
      {"/runtime", "The machine."},
      {"/logging", "What the run writes about itself."},
  };
  return table;
}

}  // namespace trident::config_detail
