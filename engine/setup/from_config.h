// What a loaded config describes: its schedule, its ranks and their groups, and the settings that
// more than one part of a step has to read alike.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/context.h"
#include "datasets/batch_sampler.h"
#include "parallel/mesh.h"
#include "parallel/tensor/linear.h"
#include "parallel/topology.h"
#include "parallel/transport/transport.h"
#include "parallel/zero/bucket_layout.h"
#include "scheduler/action.h"
#include "settings/config.h"

namespace trident {

class UpdateRule;

// Its kind, or the file it comes from, for people.
std::string schedule_name(const Config& config);
// The schedule that `config` asks for; RequestError at /pipeline/schedule if it can't be. "auto"
// searches for seconds: made once for all ranks of a process.
Schedule schedule_of(const Config& config);
// The optimizer's rule.
std::unique_ptr<UpdateRule> make_update_rule(const Config& config);
// Buckets have at most reduce_bucket_size elements, and at most allgather_bucket_size, since a
// bucket's weights are gathered in one go; alike in every stage, so that what is summed by parts is
// the same to the bit.
BucketLimits bucket_limits(const Config& config);
// Gradients are reduced after every one of several micro-batches.
bool reduces_each_micro_batch(const Config& config);
// Layers of a unit that backward computes again; 0: none.
std::int64_t recompute_layers(const Config& config);
Mesh mesh_of(const Config&);
StageEnds ends_of(const Schedule&);
TransportOptions transport_options(const Config&);
// How a run's kernels choose between ways to compute.
KernelOptions kernel_options(const Config&);
// This rank's groups in the mesh of `config`. Every rank of the transport calls it.
Topology topology_of(const Config&, const Schedule&, Transport&);
// batch.rampup_batch_size.
BatchRamp ramp_of(const Config&);
// Which samples of a global batch this rank gets; the batches are those without a ramp.
BatchShape batch_shape(const Config&, const Topology&);
TensorParallel tensor_parallel_of(const Config&, const Topology&);

}  // namespace trident
