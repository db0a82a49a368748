// Runs only training steps of a small GPT-2, in one thread, for count_instructions.py.
//
//   small_step fp32|bf16 STEPS
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/rank_model.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "engine/stepper.h"
#include "run/loop/trainer.h"
#include "settings/config.h"

namespace trident {
namespace {

std::string config_text(const std::string& dtype) {
  return R"({"model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 128,
                       "num_attention_heads": 2, "max_position_embeddings": 64,
                       "vocab_size": 1024},
             "batch": {"micro_batch_size": 2, "global_batch_size": 4},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 1.0,
             "data": {"train": [{"path": "none"}], "sequence_length": 64},
             "training": {"train_iters": 3},
             "precision": {"dtype": ")" +
         dtype + R"("}, "runtime": {"threads_per_rank": 1, "transport": "local"}})";
}

void run(const Config& config, int steps) {
  run_local(1, transport_options(config), [&](Transport& transport) {
    const Devices devices(config);
    Context context(devices.of(0), 1);
    const Schedule schedule = schedule_of(config);
    const Topology topology = topology_of(config.parallel, schedule, transport);
    RankModel model(context, config, *architecture_of(config), schedule, topology);
    Stepper stepper(model, schedule);
    model.initialise();
    std::vector<HostMicroBatch> batches(2);
    std::int32_t token = 1;
    for (HostMicroBatch& batch : batches) {
      for (int i = 0; i <= 128; ++i) {
        token = token * 1103 % 1021;
        if (i < 128) batch.tokens.push_back(token);
        if (i > 0) batch.labels.push_back(token);
      }
      batch.sample_ids = {0, 1};
    }
    double loss = 0;
    for (int i = 0; i < steps; ++i) loss = stepper.train(batches, 1e-3).loss;
    std::printf("%.6f\n", loss);
  });
}

}  // namespace
}  // namespace trident

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: small_step fp32|bf16 STEPS\n");
    return 2;
  }
  trident::run(trident::parse_config(trident::config_text(arguments[1]), {},
                                     {.constraints = trident::built_in_constraints()})
                   .config,
               std::atoi(arguments[2]));
}
