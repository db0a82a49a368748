#include "engine/optimizer/optimizer_registry.h"

namespace trident {

// Each is defined in the file of its name.
std::unique_ptr<UpdateRule> make_adam(const OptimizerParams&, bool decoupled);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerParams&);
std::unique_ptr<UpdateRule> make_adafactor(const OptimizerParams&);

const std::vector<OptimizerKind>& optimizer_registry() {
  static const std::vector<OptimizerKind> table{
      {{.name = "AdamW",
        .doc = "(decoupled weight decay)",
        .weight_decay = 0.01,
        .betas = true,
        .eps = true},
       [](const OptimizerParams& params) { return make_adam(params, true); }},
      {{.name = "Adam",
        .doc = "(decay added to the gradient; the other optimizers decouple it)",
        .betas = true,
        .eps = true},
       [](const OptimizerParams& params) { return make_adam(params, false); }},
      {{.name = "SGD", .doc = "with momentum", .momentum = true}, make_sgd},
      {{.name = "Adafactor",
        .doc = "(factored second moment, update clipping and rates relative to the weights, as "
               "torch.optim.Adafactor)"},
       make_adafactor}};
  return table;
}

}  // namespace trident
