// Trains a small model in-process and reads its results: losses, weights, gradients.
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
  int replicas = 1;  // size of a toy axis (support/mesh.h)
  int ranks() const { return data * tensor * pipeline * replicas; }
};
std::string name_of(const Layout&);  // "dp2_tp2_pp2", "dp1_tp1_pp4_v2"
std::vector<std::string> overrides_of(const Layout&);
std::vector<MeshAxis> axes_of(const Layout&);  // in addition to the config's axes

using Overrides = std::vector<std::string>;  // "a.b=value"
Overrides operator+(Overrides a, const Overrides& b);

// The config of tests/golden/<model>/config.json with absolute paths, which logs into `directory`
// without TensorBoard and trace; `overrides` are applied last.
Config golden_config(const std::string& model, const std::string& directory,
                     const Overrides& overrides = {});
// A model that is initialised from the seed instead of loaded: 4 layers of the golden shape.
Config seeded_config(
    const std::string& model, const std::string& directory, const Overrides& overrides = {},
    const std::vector<MeshAxis>& more_axes = {},
    const std::shared_ptr<const ConfigConstraints>& rules = built_in_constraints());

// Trains on all ranks of the config in this process; with On::guarded, on one guarded device for
// each rank.
TrainingSummary train(const Config&, On = usual_device(), const TrainerHooks& hooks = {});
TrainingSummary train(const TrainingInputs&, On = usual_device(), const TrainerHooks& hooks = {});

std::vector<double> losses_of(const TrainingSummary&);
double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b);

struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
// Returns all tensors of an fp32 or bf16 safetensors file by name.
std::map<std::string, HostTensor> read_tensors(const std::string& path);

// The largest value over all tensors of |a - b| / |b|, in the 2-norm of a tensor.
double largest_relative_distance(const std::map<std::string, HostTensor>& a,
                                 const std::map<std::string, HostTensor>& b);

// The settings of outcome(): dropout, and a clipping limit below every norm, so that each step is
// clipped.
extern const Overrides stirred;
// The results of a seeded model's steps.
struct Outcome {
  std::vector<double> losses;
  std::string weights;                        // bytes of the saved model.safetensors
  std::map<std::string, HostTensor> tensors;  // its values by name
};
// Trains with the settings `stirred` in this layout and expects that every step was clipped.
Outcome outcome(const std::string& model, const Layout&, const Overrides& overrides);
void expect_same_bits(const Outcome&, const Outcome&);

// One rank of a run without a trainer.
struct Rank {
  Rank(Context&, const Config&, const Architecture&, const Schedule&, const Topology&);
  RankModel model;
  Stepper stepper;
  Evaluator evaluator;
};
// Runs `body` on every rank with an initialised model made from `config`.
void on_ranks(const Config&, const TransportOptions&, const std::function<void(Rank&)>& body);
// Random tokens: the micro-batches of this model's data-parallel rank, different in each iteration.
std::vector<HostMicroBatch> synthetic_batches(const RankModel&, std::int64_t iteration);

}  // namespace trident::testing
