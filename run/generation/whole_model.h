// A model of a directory of weights, whole on one rank: what generates and scores.
#pragma once

#include <memory>
#include <string>

#include "engine/evaluator.h"
#include "engine/rank_model.h"
#include "models/architecture.h"
#include "parallel/transport/transport.h"

namespace trident {

class WholeModel {
 public:
  // RequestError where the directory is no model. The context outlives it.
  WholeModel(Context&, Transport&, const ArchitectureSet&, const std::string& directory);

  const Config& config() const { return config_; }
  std::int64_t vocabulary() const { return model_->shape().vocabulary; }
  std::int64_t positions() const { return config_.model.max_position_embeddings; }
  Evaluator& evaluator() { return *evaluator_; }
  // RequestError, naming `what`, where one is beyond the vocabulary.
  void require_known(std::span<const std::int32_t> tokens, const std::string& what) const;

 private:
  Config config_;
  std::shared_ptr<const Architecture> architecture_;
  std::unique_ptr<RankModel> model_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace trident
