// An unsharded model on one rank, loaded from a directory of weights. generate.h and score.h use
// it. The transport's world has a single rank.
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
  // RequestError where the directory holds no model. The context must outlive this object.
  WholeModel(Context&, Transport&, const ArchitectureSet&, const std::string& directory);

  const Config& config() const { return config_; }
  std::int64_t vocabulary() const { return model_->shape().vocabulary; }
  std::int64_t positions() const { return config_.model.max_position_embeddings; }
  Evaluator& evaluator() { return *evaluator_; }
  // RequestError, beginning with `what`, where a token is beyond the vocabulary.
  void require_known(std::span<const std::int32_t> tokens, const std::string& what) const;

 private:
  Config config_;
  std::shared_ptr<const Architecture> architecture_;
  std::unique_ptr<RankModel> model_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace trident
