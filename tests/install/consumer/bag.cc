#include "bag.h"

#include "kernels/elementwise.h"
#include "models/layer_name.h"
#include "models/mlp.h"
#include "models/norm.h"

namespace {

using namespace trident;

// y[i] = mean of x[0 … i] of each sample; `backward` computes the transpose, which is the gradient.
// This is a user's own kernel. It runs on the context's stream, as tensor memory may be accessed
// only there.
void running_mean(Context& context, const Tensor& x, const Tensor& y, std::int64_t sequence,
                  bool backward) {
  context.stream().enqueue([=](const Access& access) {
    const float* from = data<float>(access, x);
    float* to = data<float>(access, y);
    const std::int64_t rows = x.dim(0), hidden = x.dim(1);
    for (std::int64_t first = 0; first < rows; first += sequence) {
      for (std::int64_t h = 0; h < hidden; ++h) {
        float sum = 0;
        for (std::int64_t step = 0; step < sequence; ++step) {
          const std::int64_t i = backward ? sequence - 1 - step : step;
          const std::int64_t at = (first + i) * hidden + h;
          const auto count = static_cast<float>(i + 1);
          sum += backward ? from[at] / count : from[at];
          to[at] = backward ? sum : sum / count;
        }
      }
    }
  });
}

struct BagActivations final : SavedActivations {
  NormActivations norm;
  SavedActivationsPtr mlp;
};

class BagLayer final : public Module {
 public:
  BagLayer(const ParallelContext& parallel, const TransformerShape& shape, const std::string& name)
      : norm_(parallel, name + ".norm", shape.hidden, shape.norm_epsilon, shape.layer_norm),
        mlp_(parallel, shape, name + ".mlp") {}

  std::vector<std::shared_ptr<Parameter>> parameters() const override {
    std::vector<std::shared_ptr<Parameter>> list;
    norm_.collect(list);
    for (auto& parameter : mlp_.parameters()) list.push_back(std::move(parameter));
    return list;
  }
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x,
                 SavedActivationsPtr& kept) const override {
    auto saved = std::make_unique<BagActivations>();
    const Tensor mean = context.empty(x.shape(), x.dtype(), Category::activation);
    running_mean(context, x, mean, batch.sequence, false);
    const Tensor normed = norm_.forward(context, batch.version, mean, saved->norm);
    const Tensor y = mlp_.forward(context, batch, normed, saved->mlp);
    add(context, x, y);
    kept = std::move(saved);
    return y;
  }
  Tensor backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                        SavedActivationsPtr& kept) const override {
    auto& saved = static_cast<BagActivations&>(*kept);
    Tensor g = mlp_.backward_input(context, batch, grad_y, saved.mlp);
    g = norm_.backward_input(context, batch.version, g, {}, saved.norm);
    Tensor grad_x = context.empty(g.shape(), g.dtype(), Category::activation);
    running_mean(context, g, grad_x, batch.sequence, true);
    add(context, grad_y, grad_x);
    return grad_x;
  }
  void backward_weight(Context& context, const MicroBatch& batch,
                       SavedActivationsPtr& kept) const override {
    auto& saved = static_cast<BagActivations&>(*kept);
    mlp_.backward_weight(context, batch, saved.mlp);
    norm_.backward_weight(context, saved.norm);
    kept.reset();
  }

 private:
  Norm norm_;
  Mlp mlp_;
};

// Its tensors have our names in a Hugging Face directory, too.
class BagFormats final : public FamilyFormats {
 public:
  std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&, const std::string& name,
                                              const Shape& global) const override {
    return {{name, 0, global.matrix_rows(), false}};
  }
  std::string hugging_face_config(const Config&) const override {
    return R"({"model_type": "bag"})";
  }
  std::string model_config(std::string_view) const override { return R"({"architecture": "bag"})"; }
};

// Embedding, head and sizes are those of GPT-2. The MLP is gated: it has one sum over the tensor
// group for each layer and direction, and three products instead of GPT-2's two. Plans derive these
// costs by themselves.
class Bag final : public Architecture {
 public:
  // A sequence is not split over ranks, as its running means need all of it.
  ModelConstraints constraints() const override {
    return {.check = [](const Config& config, ConfigProblems& problems) {
      if (!config.parallel.sequence_parallel) return;
      problems.add("/parallel/sequence_parallel", "true doesn't go with model bag; leave it out");
    }};
  }
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = gpt2_->shape(config);
    shape.swiglu = true;
    return shape;
  }
  std::unique_ptr<Module> embedding(const ParallelContext& parallel, const TransformerShape& shape,
                                    Weight table) const override {
    return gpt2_->embedding(parallel, shape, std::move(table));
  }
  std::unique_ptr<Module> layer(const ParallelContext& parallel, const TransformerShape& shape,
                                int index) const override {
    return std::make_unique<BagLayer>(parallel, shape, layer_name(index));
  }
  std::unique_ptr<Module> head(const ParallelContext& parallel, const TransformerShape& shape,
                               Weight table) const override {
    return gpt2_->head(parallel, shape, std::move(table));
  }
  const FamilyFormats& formats() const override { return formats_; }

 private:
  BagFormats formats_;
  std::shared_ptr<const Architecture> gpt2_ = make_gpt2();
};

}  // namespace

std::shared_ptr<const Architecture> make_bag() {
  return std::make_shared<Bag>();
}
