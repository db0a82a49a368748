// JSON pointers of the keys that several checks use. Private to settings/.
#pragma once

namespace trident::config_detail {

inline constexpr auto kModel = "/model/architecture";
inline constexpr auto kLayers = "/model/num_layers";
inline constexpr auto kMtpLayers = "/model/mtp_num_layers";
inline constexpr auto kHeads = "/model/num_attention_heads";
inline constexpr auto kGroups = "/model/num_query_groups";
inline constexpr auto kHeadDim = "/model/head_dim";
inline constexpr auto kHidden = "/model/hidden_size";
inline constexpr auto kFfn = "/model/ffn_hidden_size";
inline constexpr auto kExperts = "/model/moe/num_experts";
inline constexpr auto kTopk = "/model/moe/router_topk";
inline constexpr auto kExpertFfn = "/model/moe/ffn_hidden_size";
inline constexpr auto kLayerFreq = "/model/moe/layer_freq";
inline constexpr auto kExpertParallel = "/parallel/expert_model_parallel_size";
inline constexpr auto kExpertTensor = "/parallel/expert_tensor_parallel_size";
inline constexpr auto kData = "/parallel/data_parallel_size";
inline constexpr auto kTensor = "/parallel/tensor_model_parallel_size";
inline constexpr auto kContext = "/parallel/context_parallel_size";
inline constexpr auto kContextExchange = "/parallel/cp_comm_type";
inline constexpr auto kContextSizes = "/parallel/hierarchical_context_parallel_sizes";
inline constexpr auto kPipeline = "/parallel/pipeline_model_parallel_size";
inline constexpr auto kChunks = "/parallel/virtual_pipeline_model_parallel_size";
inline constexpr auto kSchedule = "/pipeline/schedule";
inline constexpr auto kScheduleFile = "/pipeline/schedule_file";
inline constexpr auto kLayerSplit = "/pipeline/layer_split";
inline constexpr auto kGlobal = "/batch/global_batch_size";
inline constexpr auto kMicro = "/batch/micro_batch_size";
inline constexpr auto kAccumulation = "/batch/gradient_accumulation_steps";
inline constexpr auto kRampup = "/batch/rampup_batch_size";
inline constexpr auto kOptimizer = "/optimizer/type";
inline constexpr auto kDevice = "/runtime/device";
inline constexpr auto kTransport = "/runtime/transport";
inline constexpr auto kAlgorithm = "/runtime/collective_algorithm";

}  // namespace trident::config_detail
