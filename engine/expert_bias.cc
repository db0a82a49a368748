#include "engine/expert_bias.h"

#include "kernels/elementwise.h"
#include "kernels/routing.h"

namespace trident {

ExpertBiases::ExpertBiases(Context& context, std::span<const Bucket> buffers,
                           const Topology& topology, float rate)
    : rate_(rate) {
  for (const Bucket& bucket : buffers) {
    const Tensor counts = context.empty({bucket.layout.elements}, DType::i64, Category::gradient);
    fill(context, counts, 0);
    for (const BucketEntry& entry : bucket.layout.entries) {
      parameters_.push_back(entry.parameter);
      layers_.push_back(
          {bucket.weights.flat(entry.offset, entry.numel), counts.flat(entry.offset, entry.numel)});
      entry.parameter->bind_gradient(0, layers_.back().counts);
    }
    counts_.push_back(counts);
  }
  if (buffers.empty()) return;
  const Bucket& first = buffers.front();
  std::vector<ProcessGroup> groups{first.sharing, first.replicas};
  for (const Group group : first.layout.entries.front().parameter->spec().placement.partial) {
    groups.push_back(topology.of(group));
  }
  for (const ProcessGroup& group : groups) {
    if (group.defined() && group.size() > 1) groups_.push_back(group);
  }
}

void ExpertBiases::begin() {
  for (const auto& parameter : parameters_) parameter->set_stale(0);
}

void ExpertBiases::reduce(Context& context) {
  for (const Tensor& counts : counts_) {
    for (const ProcessGroup& group : groups_) group.all_reduce(context, counts);
  }
}

void ExpertBiases::update(Context& context) const {
  for (const Layer& layer : layers_) {
    update_expert_bias(context, {.counts = layer.counts, .bias = layer.bias, .rate = rate_});
  }
}

}  // namespace trident
