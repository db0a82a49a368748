// The field table: the only place with a key's path, range, choices and meaning. Its rows are in
// fields_*.cc.
#include "settings/field_rows.h"

namespace trident::config_detail {

const std::vector<Field>& fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> all;
    for (auto part :
         {model_fields(), moe_fields(), parallel_fields(), pipeline_fields(), batch_fields(),
          zero_fields(), precision_fields(), activation_checkpointing_fields(), optimizer_fields(),
          scheduler_fields(), data_fields(), training_fields(), checkpoint_fields(),
          runtime_fields(), logging_fields()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

const std::vector<Section>& sections() {
  static const std::vector<Section> table = {
      {"/model", "The transformer."},
      {"/model/rope_scaling",
       "Rotary positions for longer texts than the model was trained on; as in transformers."},
      {"/model/moe",
       "Experts in place of the MLP: a router sends each token to a few of them; the names are "
       "Megatron-LM's."},
      {"/parallel",
       "How the model and the batch are laid out over the ranks. `\"auto\"` in place of all its "
       "keys: "
       "the layout that `trident search` finds best for this machine (`runtime.machine`), with "
       "pipeline, micro-batch, ZeRO stage and recomputation where the config doesn't give them. It "
       "is chosen at each start and printed; `config.json` then has its numbers.",
       "auto"},
      {"/pipeline", "The order of work on each pipeline rank, and the layers that it holds."},
      {"/batch", "Batch sizes. Any that is left out is derived; their product is checked."},
      {"/zero_optimization",
       "State that data-parallel ranks shard instead of each keeping a copy."},
      {"/precision", "Number types."},
      {"/activation_checkpointing", "Trading computation for activation memory."},
      {"/optimizer", "The optimizer."},
      {"/optimizer/params", "The optimizer's numbers."},
      {"", "At the top level of the file."},
      {"/scheduler", "The learning rate over time. Iteration k counts from 1."},
      {"/data", "The texts and tokens to train and evaluate on."},
      {"/data/tokenizer", "How text becomes tokens."},
      {"/training", "Length of the run, evaluation, reproducibility."},
      {"/checkpoint", "Weights that are read and written."},
      {"/checkpoint/local", "Checkpoints in a node's own memory or on its own disk."},
      {"/runtime", "The machine."},
      {"/logging", "The files in which the run describes itself."},
  };
  return table;
}

}  // namespace trident::config_detail
