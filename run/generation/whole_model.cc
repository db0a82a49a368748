#include "run/generation/whole_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/model_directory.h"

namespace trident {

WholeModel::WholeModel(Context& context, Transport& transport, const ArchitectureSet& architectures,
                       const std::string& directory)
    : config_(config_of_directory(architectures, directory)),
      architecture_(architectures.at(config_.model.architecture)) {
  const Topology topology =
      make_topology(transport.world(), mesh_of(config_.parallel), transport.nodes());
  const Schedule schedule = schedule_of(config_);
  model_ = std::make_unique<RankModel>(context, config_, *architecture_, schedule, topology);
  evaluator_ = std::make_unique<Evaluator>(*model_, schedule);
  load_hugging_face(*model_, directory);
}

void WholeModel::require_known(std::span<const std::int32_t> tokens,
                               const std::string& what) const {
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < vocabulary()) continue;
    throw RequestError(
        fmt::format("{}: token {} is beyond the vocabulary ({})", what, token, vocabulary()));
  }
}

}  // namespace trident
