#include "settings/peer_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace trident {
namespace {

constexpr auto kMicroBatch = "/batch/micro_batch_size";
constexpr auto kTensorSize = "/parallel/tensor_model_parallel_size";
constexpr auto kPipelineSize = "/parallel/pipeline_model_parallel_size";
constexpr auto kDataSize = "/parallel/data_parallel_size";
constexpr auto kChunkCount = "/parallel/virtual_pipeline_model_parallel_size";
constexpr auto kRecomputation = "/activation_checkpointing/granularity";
constexpr auto kContextRanks = "/parallel/context_parallel_size";
constexpr auto kContextWay = "/parallel/cp_comm_type";
constexpr auto kExpertParallel = "/parallel/expert_model_parallel_size";
constexpr auto kExpertTensor = "/parallel/expert_tensor_parallel_size";
constexpr auto kExpertCount = "/model/moe/num_experts";
constexpr auto kExpertTopk = "/model/moe/router_topk";
constexpr auto kExpertFfn = "/model/moe/ffn_hidden_size";
constexpr auto kExpertLayers = "/model/moe/layer_freq";
constexpr auto kSharedExpert = "/model/moe/shared_expert_intermediate_size";
constexpr auto kTokenizerSays = "the tokenizer says which it is";
constexpr auto kOfArchitecture = "which says what its MLP computes";

std::string plain(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](char c) {
    if (c == '-') return '_';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

}  // namespace

const std::vector<PeerKey>& peer_keys() {
  static const std::vector<PeerKey> table{
      // Hugging Face: TrainingArguments and the arguments of its language-modeling scripts.
      {"max_steps", "/training/train_iters"},
      {"num_train_epochs", "/training/train_epochs"},
      {"per_device_train_batch_size", kMicroBatch},
      {"per_device_eval_batch_size", kMicroBatch, "evaluation uses the same size"},
      {"per_gpu_train_batch_size", kMicroBatch},
      {"auto_find_batch_size", kMicroBatch, "\"auto\""},
      {"learning_rate", "/optimizer/params/lr"},
      {"adam_beta1", "/optimizer/params/betas", "the first of two"},
      {"adam_beta2", "/optimizer/params/betas", "the second of two"},
      {"adam_epsilon", "/optimizer/params/eps"},
      {"max_grad_norm", "/gradient_clipping"},
      {"optim", "/optimizer/type"},
      {"lr_scheduler_type", "/scheduler/type"},
      {"warmup_steps", "/scheduler/warmup_iters"},
      {"label_smoothing_factor", "/training/label_smoothing"},
      {"eval_steps", "/training/eval_interval"},
      {"save_steps", "/checkpoint/save_interval"},
      {"logging_steps", "/logging/log_interval"},
      {"output_dir", "/checkpoint/save", "and /logging/dir"},
      {"logging_dir", "/logging/dir"},
      {"overwrite_output_dir", "/checkpoint/overwrite", "and /logging/overwrite"},
      {"report_to", "/logging/tensorboard"},
      {"resume_from_checkpoint", "/checkpoint/resume", "a path: /checkpoint/load"},
      {"load_best_model_at_end", "/checkpoint/keep_best"},
      {"model_name_or_path", "/checkpoint/load"},
      {"tokenizer_name", "/data/tokenizer/path"},
      {"train_file", "/data/train"},
      {"validation_file", "/data/validation"},
      {"block_size", "/data/sequence_length"},
      {"max_seq_length", "/data/sequence_length"},
      {"data_seed", "/data/seed"},
      {"gradient_checkpointing", kRecomputation, "\"full\""},
      {"fp16", "/precision/dtype", "\"fp16\""},
      {"bf16", "/precision/dtype", "\"bf16\""},
      {"use_cpu", "/runtime/device", "\"cpu\""},
      {"no_cuda", "/runtime/device", "\"cpu\""},
      {"fsdp", "/zero_optimization/stage", "3"},
      {"ddp_bucket_cap_mb", "/zero_optimization/reduce_bucket_size", "in elements"},
      {"ddp_timeout", "/runtime/timeout_seconds"},
      // Hugging Face: a model's config.json.
      {"model_type", "/model/architecture"},
      {"num_hidden_layers", "/model/num_layers"},
      {"n_layer", "/model/num_layers"},
      {"n_embd", "/model/hidden_size"},
      {"n_head", "/model/num_attention_heads"},
      {"num_key_value_heads", "/model/num_query_groups"},
      {"intermediate_size", "/model/ffn_hidden_size"},
      {"n_inner", "/model/ffn_hidden_size"},
      {"n_positions", "/model/max_position_embeddings"},
      {"n_ctx", "/model/max_position_embeddings"},
      {"rms_norm_eps", "/model/norm_epsilon"},
      {"layer_norm_epsilon", "/model/norm_epsilon"},
      {"rope_theta", "/model/rotary_base"},
      {"initializer_range", "/model/init_method_std"},
      {"attn_pdrop", "/model/attention_dropout"},
      {"resid_pdrop", "/model/hidden_dropout"},
      {"embd_pdrop", "/model/hidden_dropout"},
      {"torch_dtype", "/precision/dtype"},
      // Megatron-LM.
      {"num_layers_per_virtual_pipeline_stage", kChunkCount, "the number of chunks of a rank"},
      {"num_virtual_stages_per_pipeline_rank", kChunkCount},
      {"seq_length", "/data/sequence_length"},
      {"lr_decay_style", "/scheduler/type"},
      {"lr_decay_iters", "/scheduler/decay_iters"},
      {"lr_warmup_iters", "/scheduler/warmup_iters"},
      {"lr_warmup_fraction", "/scheduler/warmup_ratio"},
      {"lr_wsd_decay_iters", "/scheduler/wsd_decay_iters"},
      {"lr_wsd_decay_style", "/scheduler/wsd_decay_style"},
      {"clip_grad", "/gradient_clipping"},
      {"adam_eps", "/optimizer/params/eps"},
      {"sgd_momentum", "/optimizer/params/momentum"},
      {"data_path", "/data/train"},
      {"train_data_path", "/data/train"},
      {"valid_data_path", "/data/validation"},
      {"json_keys", "/data/json_key"},
      {"tokenizer_type", "/data/tokenizer/type"},
      {"tokenizer_model", "/data/tokenizer/path"},
      {"group_query_attention", "/model/num_query_groups"},
      {"norm_eps", "/model/norm_epsilon"},
      {"untie_embeddings_and_output_weights", "/model/tie_word_embeddings", "the opposite"},
      {"recompute_granularity", kRecomputation},
      {"recompute_num_layers", "/activation_checkpointing/num_layers"},
      {"use_distributed_optimizer", "/zero_optimization/stage", "1"},
      {"overlap_grad_reduce", "/zero_optimization/overlap_comm"},
      {"initial_loss_scale", "/precision/initial_scale_power", "its power of two"},
      {"accumulate_allreduce_grads_in_fp32", "/precision/grad_accum_dtype", "\"fp32\""},
      {"async_save", "/checkpoint/asynchronous"},
      {"no_load_optim", "/checkpoint/exclude_from_loading", "[\"optimizer\"]"},
      {"finetune", "/checkpoint/exclude_from_loading", "[\"optimizer\", \"iteration\"]"},
      {"non_persistent_local_ckpt_dir", "/checkpoint/local/dir"},
      {"tensorboard_dir", "/logging/tensorboard", "true: into /logging/dir"},
      {"distributed_timeout_minutes", "/runtime/timeout_seconds", "in seconds"},
      // DeepSpeed.
      {"train_batch_size", "/batch/global_batch_size"},
      {"train_micro_batch_size_per_gpu", kMicroBatch},
      {"steps_per_print", "/logging/log_interval"},
      {"fp16.enabled", "/precision/dtype", "\"fp16\""},
      {"bf16.enabled", "/precision/dtype", "\"bf16\""},
      {"bfloat16.enabled", "/precision/dtype", "\"bf16\""},
      {"fp16.loss_scale", "/precision/loss_scale"},
      {"fp16.initial_scale_power", "/precision/initial_scale_power"},
      {"fp16.loss_scale_window", "/precision/loss_scale_window"},
      {"fp16.hysteresis", "/precision/hysteresis"},
      {"fp16.min_loss_scale", "/precision/min_loss_scale"},
      {"data_types.grad_accum_dtype", "/precision/grad_accum_dtype"},
      {"warmup_min_lr", "/scheduler/warmup_iters", "a warm-up begins at lr over warmup_iters"},
      {"warmup_max_lr", "/optimizer/params/lr"},
      {"warmup_num_steps", "/scheduler/warmup_iters"},
      {"total_num_steps", "/scheduler/decay_iters"},
      {"tensorboard.enabled", "/logging/tensorboard"},
      {"tensorboard.output_path", "/logging/dir"},
      {"autotp_size", kTensorSize},
      {"tp_size", kTensorSize},
      {"pipeline.stages", kPipelineSize},
      // torchtitan.
      {"steps", "/training/train_iters"},
      {"seq_len", "/data/sequence_length"},
      {"local_batch_size", kMicroBatch},
      {"max_norm", "/gradient_clipping"},
      {"dataset_path", "/data/train"},
      {"tensor_parallel_degree", kTensorSize},
      {"pipeline_parallel_degree", kPipelineSize},
      {"data_parallel_replicate_degree", kDataSize},
      {"data_parallel_shard_degree", kDataSize, "sharded by /zero_optimization/stage 3"},
      {"pipeline_parallel_schedule", "/pipeline/schedule"},
      {"pipeline_parallel_schedule_csv", "/pipeline/schedule_file"},
      {"pipeline_parallel_microbatch_size", kMicroBatch},
      {"enable_async_tensor_parallel", "/parallel/tp_comm_overlap"},
      {"optimizer.name", "/optimizer/type"},
      {"model.name", "/model/architecture"},
      {"decay_type", "/scheduler/type"},
      {"min_lr_factor", "/scheduler/min_lr", "the rate itself"},
      {"lr_min", "/scheduler/min_lr", "the rate itself"},
      {"activation_checkpoint.mode", kRecomputation},
      {"checkpoint.folder", "/checkpoint/save"},
      {"checkpoint.interval", "/checkpoint/save_interval"},
      {"keep_latest_k", "/checkpoint/save_total_limit"},
      {"async_mode", "/checkpoint/asynchronous"},
      {"log_freq", "/logging/log_interval"},
      {"enable_tensorboard", "/logging/tensorboard"},
      {"dump_folder", "/logging/dir"},
      // nanotron.
      {"train_steps", "/training/train_iters"},
      {"batch_accumulation_per_replica", "/batch/gradient_accumulation_steps"},
      {"val_check_interval", "/training/eval_interval"},
      {"limit_val_batches", "/training/eval_iters"},
      {"dp", kDataSize},
      {"tp", kTensorSize},
      {"pp", kPipelineSize},
      {"pp_engine", "/pipeline/schedule"},
      {"tp_mode", "/parallel/sequence_parallel", "true: REDUCE_SCATTER"},
      {"tp_linear_async_communication", "/parallel/tp_comm_overlap"},
      {"recompute_layer", kRecomputation, "\"full\""},
      {"zero_stage", "/zero_optimization/stage"},
      {"lr_warmup_steps", "/scheduler/warmup_iters"},
      {"lr_decay_steps", "/scheduler/decay_iters", "with the warm-up"},
      {"min_decay_lr", "/scheduler/min_lr"},
      {"accumulate_grad_in_fp32", "/precision/grad_accum_dtype", "\"fp32\""},
      {"checkpoint_interval", "/checkpoint/save_interval"},
      {"checkpoints_path", "/checkpoint/save"},
      {"resume_checkpoint_path", "/checkpoint/load"},
      {"iteration_step_info_interval", "/logging/log_interval"},
      {"tokenizer_name_or_path", "/data/tokenizer/path"},
      // Several other trainers, among them vLLM and Lightning.
      {"tensor_parallel_size", kTensorSize},
      {"pipeline_parallel_size", kPipelineSize},
      {"model_parallel_size", kTensorSize},
      {"virtual_pipeline_parallel_size", kChunkCount},
      {"batch_size", "/batch/global_batch_size"},
      {"microbatch_size", kMicroBatch},
      {"grad_accum_steps", "/batch/gradient_accumulation_steps"},
      {"accumulate_grad_batches", "/batch/gradient_accumulation_steps"},
      {"max_epochs", "/training/train_epochs"},
      {"epochs", "/training/train_epochs"},
      {"max_iters", "/training/train_iters"},
      {"gradient_clip_val", "/gradient_clipping"},
      {"grad_clip", "/gradient_clipping"},
      {"max_train_steps", "/training/train_iters"},
      {"total_steps", "/training/train_iters"},
      {"num_steps", "/training/train_iters"},
      {"num_epochs", "/training/train_epochs"},
      {"n_heads", "/model/num_attention_heads"},
      {"n_kv_heads", "/model/num_query_groups"},
      {"n_layers", "/model/num_layers"},
      {"dim", "/model/hidden_size"},
      {"dataset_name", "/data/train"},
      {"mixed_precision", "/precision/dtype"},
      {"eval_strategy", "/training/eval_interval"},
      {"save_strategy", "/checkpoint/save_interval"},
      {"dp_size", kDataSize},
      {"pp_size", kPipelineSize},
      {"random_seed", "/training/seed"},
      {"dropout", "/model/hidden_dropout", "and /model/attention_dropout"},
      {"lr_warmup_samples", "/scheduler/warmup_iters", "in steps"},
      {"train_samples", "/training/train_iters", "in steps"},
      {"run_name", "/logging/dir"},
      {"num_gpus", "", "the sizes of parallel say how many ranks there are"},
      {"num_workers", "", "batches need no workers here"},
      {"dataloader_num_workers", "", "batches need no workers here"},
      {"fsdp_config", "/zero_optimization/stage", "3"},
      {"context_parallel_degree", kContextRanks},
      {"cp_size", kContextRanks},
      {"sequence_parallel_size", kContextRanks, "and cp_comm_type \"a2a\", as DeepSpeed-Ulysses"},
      {"ulysses_sequence_parallel_size", kContextRanks, "and cp_comm_type \"a2a\""},
      {"context_parallel_rotate_method", kContextWay, "\"allgather\" is all_gather"},
      // Mixtures of experts: Megatron-LM, DeepSpeed, torchtitan, transformers' config.json.
      {"expert_parallel_size", kExpertParallel},
      {"expert_parallel_degree", kExpertParallel},
      {"ep_size", kExpertParallel},
      {"expert_tensor_parallel_degree", kExpertTensor},
      {"moe_router_topk", kExpertTopk},
      {"moe_ffn_hidden_size", kExpertFfn},
      {"moe_shared_expert_intermediate_size", kSharedExpert},
      {"moe_layer_freq", kExpertLayers},
      {"moe_router_score_function", "/model/moe/router_score_function"},
      {"moe_router_topk_scaling_factor", "/model/moe/router_topk_scaling_factor"},
      {"moe_router_num_groups", "/model/moe/router_num_groups"},
      {"moe_router_group_topk", "/model/moe/router_group_topk"},
      {"moe_router_load_balancing_type", "/model/moe/router_load_balancing_type"},
      {"moe_aux_loss_coeff", "/model/moe/aux_loss_coeff"},
      {"moe_z_loss_coeff", "/model/moe/z_loss_coeff"},
      {"moe_router_enable_expert_bias", "/model/moe/router_enable_expert_bias"},
      {"moe_router_bias_update_rate", "/model/moe/router_bias_update_rate"},
      {"moe_router_dtype", "/model/moe/router_dtype"},
      {"num_nextn_predict_layers", "/model/mtp_num_layers"},
      {"num_mtp_layers", "/model/mtp_num_layers"},
      {"qk_nope_head_dim", "/model/qk_head_dim"},
      {"qk_rope_head_dim", "/model/qk_pos_emb_head_dim"},
      {"multi_latent_attention", "/model/architecture", kOfArchitecture},
      {"rope_scaling.type", "/model/rope_scaling/rope_type"},
      {"rope_parameters", "/model/rope_scaling/rope_type",
       "with its other keys, and /model/rotary_base"},
      {"layer_types", "/model/window_layers", "the layers with a window"},
      {"moe_expert_capacity_factor", "/model/moe/expert_capacity_factor"},
      {"moe_token_drop_policy", "/model/moe/token_drop_policy"},
      {"num_local_experts", kExpertCount},
      {"n_routed_experts", kExpertCount},
      {"num_experts_per_tok", kExpertTopk},
      {"moe_intermediate_size", kExpertFfn},
      {"n_shared_experts", kSharedExpert, "their width together"},
      {"decoder_sparse_step", kExpertLayers,
       "a list: 1 for layers i from 0 where the step divides i + 1"},
      {"mlp_only_layers", kExpertLayers, "a list with 0 for these layers, 1 for others"},
      {"first_k_dense_replace", kExpertLayers, "a list with 0 for these layers, 1 for others"},
      {"router_aux_loss_coef", "/model/moe/aux_loss_coeff", "of a loss that is summed over layers"},
      {"router_z_loss_coef", "/model/moe/z_loss_coeff"},
      {"n_group", "/model/moe/router_num_groups"},
      {"topk_group", "/model/moe/router_group_topk"},
      {"routed_scaling_factor", "/model/moe/router_topk_scaling_factor"},
      {"scoring_func", "/model/moe/router_score_function"},
      {"eos_token_id", "", kTokenizerSays},
      {"bos_token_id", "", kTokenizerSays},
      {"hidden_act", "/model/architecture", kOfArchitecture},
      {"activation_function", "/model/architecture", kOfArchitecture},
      {"wandb_project", "/logging/dir", "from where track.py sends it to a tracker"},
  };
  return table;
}

const PeerKey* find_peer_key(std::string_view section, std::string_view name) {
  const std::string own = plain(name), with_section = plain(section) + "." + own;
  const PeerKey* found = nullptr;
  for (const PeerKey& key : peer_keys()) {
    if (key.name == with_section) return &key;
    if (key.name == own) found = &key;
  }
  return found;
}

std::string directions(const PeerKey& key) {
  if (key.path.empty()) return std::string(key.note);
  return key.note.empty() ? fmt::format("here it is {}", key.path)
                          : fmt::format("here it is {} ({})", key.path, key.note);
}

}  // namespace trident
