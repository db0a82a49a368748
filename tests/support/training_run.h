// Trains a small model in-process and looks at what it left: losses, weights, gradients.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "datasets/batch_sampler.h"
#include "engine/evaluator.h"
#include "engine/rank_model.h"
#include "engine/setup/registry.h"
#include "engine/stepper.h"
#include "run/loop/trainer.h"
#include "settings/config.h"
#include "support/devices.h"

namespace trident::testing {

struct Layout {
  int data = 1, tensor = 1, pipeline = 1, chunks = 1;
  int replicas = 1;  // of a toy axis (support/mesh.h)
  int ranks() const { return data * tensor * pipeline * replicas; }
};
std::string name_of(const Layout&);  // "dp2_tp2_pp2", "dp1_tp1_pp4_v2"
std::vector<std::string> overrides_of(const Layout&);
std::vector<MeshAxis> axes_of(const Layout&);  // beside the config's own

using Overrides = std::vector<std::string>;  // "a.b=value"
Overrides operator+(Overrides a, const Overrides& b);

// tests/golden/<model>/config.json with absolute paths, logging into `directory`, neither
// TensorBoard nor trace; then `overrides`.
Config golden_config(const std::string& model, const std::string& directory,
                     const Overrides& overrides = {});
// A model that is not loaded but initialised from the seed: 4 layers of the golden shape.
Config seeded_config(
    const std::string& model, const std::string& directory, const Overrides& overrides = {},
    const std::vector<MeshAxis>& more_axes = {},
    const std::shared_ptr<const ConfigConstraints>& rules = built_in_constraints());

// Runs it on all its ranks in this process; on one `guarded` device a rank where asked.
TrainingSummary train(const Config&, On = usual_device(), const TrainerHooks& hooks = {});
TrainingSummary train(const TrainingInputs&, On = usual_device(), const TrainerHooks& hooks = {});

std::vector<double> losses_of(const TrainingSummary&);
double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b);

struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
// All tensors of an fp32 or bf16 safetensors file by name.
std::map<std::string, HostTensor> read_tensors(const std::string& path);

// Of the tensor where it is largest: the norm of the difference over that of `b`.
double largest_relative_distance(const std::map<std::string, HostTensor>& a,
                                 const std::map<std::string, HostTensor>& b);

// The settings of outcome(): dropout, and a limit below every norm, so that each step is clipped.
extern const Overrides stirred;
// What the steps of a seeded model leave.
struct Outcome {
  std::vector<double> losses;
  std::string weights;                        // bytes of the saved model.safetensors
  std::map<std::string, HostTensor> tensors;  // its values by name
};
// Trains `stirred` in this layout and expects that every step was clipped.
Outcome outcome(const std::string& model, const Layout&, const Overrides& overrides);
void expect_same_bits(const Outcome&, const Outcome&);

// A rank of a run without a trainer.
struct Rank {
  Rank(Context&, const Config&, const Architecture&, const Schedule&, const Topology&);
  RankModel model;
  Stepper stepper;
  Evaluator evaluator;
};
// Runs `body` on every rank with a model made from `config` and initialised.
void on_ranks(const Config&, const TransportOptions&, const std::function<void(Rank&)>& body);
// Random tokens: the micro-batches of this model's data-parallel rank, different in each iteration.
std::vector<HostMicroBatch> synthetic_batches(const RankModel&, std::int64_t iteration);

}  // namespace trident::testing
