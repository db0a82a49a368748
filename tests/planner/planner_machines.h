// Machines and published runs that the planner's tests share.
#pragma once

#include <fmt/format.h>

#include <string>

#include "engine/setup/registry.h"
#include "planner/machine/machine.h"
#include "planner/simulation/step_simulation.h"
#include "settings/config.h"
#include "support/source_dir.h"

namespace trident::testing {

inline Machine machine_named(const std::string& name) {
  return read_machine(name, source_dir() + "/configs/machines");
}
inline Machine dgx_a100() {
  return machine_named("dgx_a100");
}

// A GPT as Megatron-LM ran it, with sequences of 2,048 tokens and a vocabulary of 51,200.
struct PublishedRun {
  int layers, hidden, heads, tensor, pipeline, chunks, devices, batch, micro_batch;
  const char* recomputation = "full";
  bool sequence_parallel = false;
  const char* gradients = "fp16";  // the dtype of the gradients' sums
};

inline Config config_of(const PublishedRun& run) {
  const std::string text = fmt::format(
      R"({{
  "model": {{"num_layers": {}, "hidden_size": {}, "num_attention_heads": {}, "vocab_size": 51200,
            "hidden_dropout": 0.1, "attention_dropout": 0.1}},
  "parallel": {{"data_parallel_size": {}, "tensor_model_parallel_size": {},
               "pipeline_model_parallel_size": {}, "virtual_pipeline_model_parallel_size": {},
               "sequence_parallel": {}}},
  "pipeline": {{"schedule": "{}"}},
  "batch": {{"global_batch_size": {}, "micro_batch_size": {}}},
  "precision": {{"dtype": "fp16", "grad_accum_dtype": "{}"}},
  "zero_optimization": {{"reduce_bucket_size": 50000000, "allgather_bucket_size": 50000000}},
  "activation_checkpointing": {{"granularity": "{}"}},
  "data": {{"train": [{{"path": "text"}}], "sequence_length": 2048,
           "tokenizer": {{"type": "file", "path": "tokenizer.json"}}}},
  "training": {{"train_iters": 100}},
  "runtime": {{"device": "cuda", "ranks_per_node": 8}}
}})",
      run.layers, run.hidden, run.heads, run.devices / (run.tensor * run.pipeline), run.tensor,
      run.pipeline, run.chunks, run.sequence_parallel, run.chunks > 1 ? "interleaved_1f1b" : "1f1b",
      run.batch, run.micro_batch, run.gradients, run.recomputation);
  return parse_config(text, {}, {.constraints = built_in_constraints()}).config;
}

// Sequence-parallel runs in bf16 on H100s. Tensor-parallel sums and gradient reductions overlap
// with compute; the optimizer state is sharded; nothing is recomputed.
inline Config h100_config(const std::string& model, const std::string& parallel,
                          const std::string& schedule, int batch, int micro_batch, int sequence) {
  const std::string text = fmt::format(
      R"({{
  "model": {{{}}},
  "parallel": {{{}, "sequence_parallel": true, "tp_comm_overlap": true}},
  "pipeline": {{"schedule": "{}"}},
  "batch": {{"global_batch_size": {}, "micro_batch_size": {}}},
  "precision": {{"dtype": "bf16"}},
  "zero_optimization": {{"stage": 1, "overlap_comm": true}},
  "activation_checkpointing": {{"granularity": "none"}},
  "data": {{"train": [{{"path": "text"}}], "sequence_length": {},
           "tokenizer": {{"type": "file", "path": "tokenizer.json"}}}},
  "training": {{"train_iters": 100}},
  "runtime": {{"device": "cuda", "ranks_per_node": 8}}
}})",
      model, parallel, schedule, batch, micro_batch, sequence);
  return parse_config(text, {}, {.constraints = built_in_constraints()}).config;
}

// Models of the papers.
inline constexpr PublishedRun gpt_22b{48, 6144, 64, 8, 1, 1, 8, 4, 4};
inline constexpr PublishedRun gpt_39b{48, 8192, 64, 8, 2, 1, 512, 1536, 4};
inline constexpr PublishedRun gpt_1t{128, 25600, 160, 8, 64, 1, 3072, 3072, 1};
inline constexpr PublishedRun gpt_530b{105, 20480, 128, 8, 35, 3, 2520, 2520, 1};

inline SimulatedStep simulated(const Config& config, const Machine& machine,
                               const Assumptions& assumptions) {
  return simulate_step(config, *architecture_of(config), machine, assumptions);
}
inline SimulatedStep simulated(const PublishedRun& run, const Machine& machine = dgx_a100()) {
  // Without a pipeline, PyTorch's module reduced gradients concurrently with backward.
  const Config config = config_of(run);
  Assumptions assumptions = Assumptions::of(config.zero_optimization, config.parallel);
  assumptions.assume(run.pipeline == 1 ? "megatron_2021,gradients=beside" : "megatron_2021");
  return simulated(config, machine, assumptions);
}

}  // namespace trident::testing
