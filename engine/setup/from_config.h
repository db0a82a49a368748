// Derives objects from a loaded config: its schedule, its ranks and their groups, and settings that
// more than one part of a step reads. No function is collective, except for topology_of().
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

// The schedule's name, or the path of its file; for messages.
std::string schedule_name(const PipelineConfig&);
// The schedule of `config`. Throws RequestError at /pipeline/schedule if it can't be made. The
// search of "auto" takes seconds, so make it once for all ranks of a process.
Schedule schedule_of(const Config& config);
// The optimizer's update rule.
std::unique_ptr<UpdateRule> make_update_rule(const Config& config);
// The limits of a bucket: at most reduce_bucket_size elements, and at most allgather_bucket_size,
// as a bucket's weights are gathered at once. The limits are the same in every ZeRO stage, so that
// sums by parts are bitwise identical.
BucketLimits bucket_limits(const ZeroConfig&, const ParallelConfig&);
// Whether gradients are reduced after each of several micro-batches.
bool reduces_each_micro_batch(const Config& config);
// The layers of a recomputed unit; 0: no recomputation.
std::int64_t recompute_layers(const ActivationCheckpointingConfig&);
Mesh mesh_of(const ParallelConfig&);
StageEnds ends_of(const Schedule&);
TransportOptions transport_options(const Config&);
// The choices of a run's kernels between implementations.
KernelOptions kernel_options(const TrainingConfig&, const PrecisionConfig&, const RuntimeConfig&);
// This rank's groups in the config's mesh. Collective over the transport's ranks.
Topology topology_of(const ParallelConfig&, const Schedule&, Transport&);
// The batch ramp of batch.rampup_batch_size.
BatchRamp ramp_of(const BatchConfig&);
// The part of a global batch that this rank gets, for the batch size without a ramp.
BatchShape batch_shape(const BatchConfig&, const Topology&);
ParallelContext parallel_context_of(const ParallelConfig&, const ActivationCheckpointingConfig&,
                                    const Topology&);

}  // namespace trident
