// Attention by cuDNN's fused kernels (Dao 2022), through cudnn-frontend. This is the only file that
// includes either library. Our kernels handle the cases that cuDNN refuses, and dropout, for which
// cuDNN would use its own masks.
#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

namespace fe = cudnn_frontend;

void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw Error(std::string("cudnn: ") + what + ": " + cudnnGetErrorString(status));
  }
}

// Identifiers of a graph's tensors.
enum Name : std::int64_t {
  query = 1,
  key,
  value,
  out,
  statistics,
  grad_out,
  grad_query,
  grad_key,
  grad_value
};

struct Built {
  fe::graph::Graph graph;
  std::int64_t workspace = 0;  // bytes
};

using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

// Creates the tensors of a graph: (B, heads, S, D or E) inside rows of `row` elements, and the
// statistics with one value per row.
class Tensors {
 public:
  Tensors(fe::graph::Graph& graph, const AttentionShape& shape) : graph_(graph), k_(shape) {}

  TensorPtr input(Name name, std::int64_t heads, std::int64_t dim, std::int64_t row) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(name)
                             .set_dim(extents(heads, dim))
                             .set_stride(strides(dim, row)));
  }
  void output(const TensorPtr& tensor, Name name, std::int64_t heads, std::int64_t dim,
              std::int64_t row) const {
    tensor->set_output(true)
        .set_uid(name)
        .set_dim(extents(heads, dim))
        .set_stride(strides(dim, row));
  }
  // The statistics are the logarithms of the softmax's sums.
  fe::graph::Tensor_attributes& as_statistics(fe::graph::Tensor_attributes& tensor) const {
    return tensor.set_uid(statistics)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({k_.batch, k_.heads, k_.sequence, 1})
        .set_stride({k_.heads * k_.sequence, k_.sequence, 1, 1});
  }

 private:
  using Extents = std::vector<std::int64_t>;
  Extents extents(std::int64_t heads, std::int64_t dim) const {
    return {k_.batch, heads, k_.sequence, dim};
  }
  Extents strides(std::int64_t dim, std::int64_t row) const {
    return {k_.sequence * row, dim, row, 1};
  }

  fe::graph::Graph& graph_;
  const AttentionShape& k_;
};

void describe(const AttentionKey& wanted, fe::graph::Graph& graph) {
  graph
      .set_io_data_type(wanted.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16
                                                    : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const AttentionShape& k = wanted.shape;
  const Tensors tensors(graph, k);
  const std::int64_t d = k.head_dim, e = k.value_dim(), out_row = k.out_row();
  const TensorPtr q = tensors.input(query, k.heads, d, wanted.query_row),
                  keys = tensors.input(key, k.groups, d, wanted.key_row),
                  values = tensors.input(value, k.groups, e, wanted.value_row);
  const auto scale =
      static_cast<float>(k.score_factor / std::sqrt(static_cast<double>(k.head_dim)));
  if (!wanted.backward) {
    const auto [o, stats] = graph.sdpa(q, keys, values,
                                       fe::graph::SDPA_attributes()
                                           .set_name("attention")
                                           .set_generate_stats(true)
                                           .set_causal_mask(true)
                                           .set_attn_scale(scale));
    tensors.output(o, out, k.heads, e, out_row);
    tensors.as_statistics(stats->set_output(true));
    return;
  }
  const TensorPtr o = tensors.input(out, k.heads, e, out_row),
                  d_o = tensors.input(grad_out, k.heads, e, out_row);
  fe::graph::Tensor_attributes attributes;
  const TensorPtr stats = graph.tensor(tensors.as_statistics(attributes));
  const auto [dq, dk, dv] =
      graph.sdpa_backward(q, keys, values, o, d_o, stats,
                          fe::graph::SDPA_backward_attributes()
                              .set_name("attention gradient")
                              .set_causal_mask(true)
                              .set_attn_scale(scale)
                              .set_deterministic_algorithm(wanted.deterministic));
  tensors.output(dq, grad_query, k.heads, d, wanted.query_row);
  tensors.output(dk, grad_key, k.groups, d, wanted.key_row);
  tensors.output(dv, grad_value, k.groups, e, wanted.value_row);
}

class CudnnAttention final : public FusedAttention {
 public:
  ~CudnnAttention() override {
    if (handle_ == nullptr) return;
    cudnnSetStream(handle_, nullptr);  // the stream no longer exists
    cudnnDestroy(handle_);
  }

  bool forward(const Queue& queue, const Access& access, Context& context,
               const AttentionArgs& args) override {
    Built* const built = prepare(queue, access, context, args, args.in, false);
    if (built == nullptr) return false;
    run(access, context, *built,
        {{query, address(access, args.in.query)},
         {key, address(access, args.in.key)},
         {value, address(access, args.in.value)},
         {out, TensorAddress::of(access, args.out)},
         {statistics, TensorAddress::of(access, args.log_sum_exp)}});
    return true;
  }

  bool backward(const Queue& queue, const Access& access, Context& context,
                const AttentionBackwardArgs& args) override {
    const AttentionArgs& forward = args.forward;
    Built* const built = prepare(queue, access, context, forward, args.grad, true);
    if (built == nullptr) return false;
    run(access, context, *built,
        {{query, address(access, forward.in.query)},
         {key, address(access, forward.in.key)},
         {value, address(access, forward.in.value)},
         {out, TensorAddress::of(access, forward.out)},
         {statistics, TensorAddress::of(access, forward.log_sum_exp)},
         {grad_out, TensorAddress::of(access, args.grad_out)},
         {grad_query, address(access, args.grad.query)},
         {grad_key, address(access, args.grad.key)},
         {grad_value, address(access, args.grad.value)}});
    return true;
  }

 private:
  static void* address(const Access& access, const HeadColumns& x) {
    return static_cast<std::byte*>(TensorAddress::of(access, x.rows)) +
           x.begin * static_cast<std::int64_t>(size_of(x.rows.dtype()));
  }

  //  // cuDNN reads and writes 16 bytes at a time.
  static bool fits(const Access& access, const HeadColumns& x) {
    const std::int64_t row = x.rows.dim(1) * static_cast<std::int64_t>(size_of(x.rows.dtype()));
    return row % 16 == 0 && alignment_of(address(access, x)) == 16;
  }

  // Returns null if cuDNN has no kernel or must not be used. `grad` lies in rows as long as those
  // of the operands; otherwise our kernels run.
  Built* prepare(const Queue& queue, const Access& access, Context& context,
                 const AttentionArgs& args, const QueryKeyValue& grad, bool backward) {
    AttentionShape shape = args.shape;
    shape.key_positions = shape.keys();
    shape.value_head_dim = shape.value_dim();
    if (!fused_attention_covers(args) || without("cudnn")) return nullptr;
    for (const QueryKeyValue& heads : {args.in, grad}) {
      for (const HeadColumns& x : {heads.query, heads.key, heads.value}) {
        if (!fits(access, x)) return nullptr;
      }
    }
    // cuDNN has no kernel for these head dimensions on any GPU.
    for (const std::int64_t dim : {shape.head_dim, shape.value_dim()}) {
      if (dim % 8 != 0 || dim > 256) return nullptr;
    }
    const AttentionKey wanted{.shape = shape,
                              .query_row = args.in.query.rows.dim(1),
                              .key_row = args.in.key.rows.dim(1),
                              .value_row = args.in.value.rows.dim(1),
                              .dtype = args.out.dtype(),
                              .backward = backward,
                              .deterministic = context.kernel_options().deterministic};
    if (grad.query.rows.dim(1) != wanted.query_row || grad.key.rows.dim(1) != wanted.key_row ||
        grad.value.rows.dim(1) != wanted.value_row) {
      return nullptr;
    }
    if (handle_ == nullptr) check(cudnnCreate(&handle_), "a handle");
    check(cudnnSetStream(handle_, queue.stream), "a stream");
    auto found = graphs_.find(wanted);
    if (found == graphs_.end()) found = graphs_.emplace(wanted, build(wanted)).first;
    return found->second.get();
  }

  void run(const Access& access, Context& context, Built& built,
           std::unordered_map<std::int64_t, void*> tensors) {
    void* const workspace = state_of(context).scratch(access, context, built.workspace);
    if (auto status = built.graph.execute(handle_, tensors, workspace); status.is_bad()) {
      throw Error("cudnn: attention: " + status.get_message());
    }
  }

  // Returns null if cuDNN has no kernel, or needs too much workspace.
  std::unique_ptr<Built> build(const AttentionKey& wanted) {
    auto built = std::make_unique<Built>();
    describe(wanted, built->graph);
    const auto refused = [&](const std::string& why) {
      const AttentionShape& k = wanted.shape;
      log_refusal("cudnn: attention " + std::string(wanted.backward ? "backward" : "forward") +
                  " B " + std::to_string(k.batch) + ", S " + std::to_string(k.sequence) +
                  ", heads " + std::to_string(k.heads) + "/" + std::to_string(k.groups) + ", D " +
                  std::to_string(k.head_dim) + " " + std::string(name_of(wanted.dtype)) + ": " +
                  why);
      return nullptr;
    };
    if (auto status = built->graph.build(handle_, {fe::HeurMode_t::A}); status.is_bad()) {
      return refused(status.get_message());
    }
    if (auto status = built->graph.get_workspace_size(built->workspace); status.is_bad()) {
      return refused(status.get_message());
    }
    // The workspace of cuDNN's deterministic gradient grows with S² on some GPUs.
    if (built->workspace > fused_attention_most) {
      return refused(std::to_string(built->workspace) + " bytes of workspace");
    }
    return built;
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionKey, std::unique_ptr<Built>> graphs_;  // null: cuDNN has no kernel
};

}  // namespace

std::unique_ptr<FusedAttention> make_fused_attention() {
  return std::make_unique<CudnnAttention>();
}
int fused_attention_version() {
  return static_cast<int>(cudnnGetVersion());
}

}  // namespace trident::cuda
