// Machines and published runs that the lab's tests share.
#pragma once

#include <fmt/format.h>

#include <string>

#include "config/config.h"
#include "support/source_dir.h"
#include "training/lab/machine.h"
#include "training/setup/kinds.h"

namespace trident::testing {

inline Machine dgx_a100() {
  return read_machine("dgx_a100", source_dir() + "/configs/machines");
}

// A GPT as Megatron-LM ran it, of sequences of 2,048 and a vocabulary of 51,200.
struct PublishedRun {
  int layers, hidden, heads, tensor, pipeline, chunks, devices, batch, micro_batch;
  const char* recomputation = "full";
  bool sequence_parallel = false;
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
  "precision": {{"dtype": "fp16"}},
  "zero_optimization": {{"reduce_bucket_size": 50000000, "allgather_bucket_size": 50000000}},
  "activation_checkpointing": {{"granularity": "{}"}},
  "data": {{"train": [{{"path": "text"}}], "sequence_length": 2048,
           "tokenizer": {{"type": "file", "path": "tokenizer.json"}}}},
  "training": {{"train_iters": 100}},
  "runtime": {{"ranks_per_node": 8}}
}})",
      run.layers, run.hidden, run.heads, run.devices / (run.tensor * run.pipeline), run.tensor,
      run.pipeline, run.chunks, run.sequence_parallel, run.chunks > 1 ? "interleaved_1f1b" : "1f1b",
      run.batch, run.micro_batch, run.recomputation);
  return parse_config(text, {}, {.rules = built_in_rules()}).config;
}

}  // namespace trident::testing
