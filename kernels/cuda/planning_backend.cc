// Memory use of the CUDA kernels, for a plan on a machine with or without a GPU. For the internal
// workspaces of cuDNN and CUB it counts the memory that their algorithms need, not the memory that
// a particular version takes.
#include "kernels/backend.h"
#include "kernels/cuda/scratch.h"

namespace trident::cuda {
namespace {

// The same memory as State in kernels/cuda/state.h.
struct Planned final : KernelState {
  Tensor scratch, products, rotary;
  RotaryFrequencies rotary_frequencies;
  std::int64_t rotary_positions = 0, rotary_head_dim = 0;
};

void reserve(Context& context, std::int64_t bytes) {
  Tensor& scratch = context.kernel_state<Planned>().scratch;
  if (scratch && scratch.bytes() >= bytes) return;
  scratch = Tensor();
  scratch = context.empty({bytes}, DType::u8, Category::workspace);
}
template <class T>
void reserve_for(Context& context, std::int64_t count) {
  reserve(context, count * static_cast<std::int64_t>(sizeof(T)));
}

void reserve_gemm(const Access&, Context& context, const GemmArgs& args) {
  Tensor& products = context.kernel_state<Planned>().products;
  if (!products) {
    products = context.empty({static_cast<std::int64_t>(products_workspace)}, DType::u8,
                             Category::workspace);
  }
  const auto like = [&](const Tensor& x) {
    return context.empty(x.shape(), x.dtype(), Category::workspace);
  };
  const bool by_time = !context.kernel_options().deterministic;
  const auto alone = [&] {  // timing writes to a spare result
    if (by_time && args.accumulate) like(args.c);
  };
  const auto unfused = [&] {
    alone();
    reserve_for<float>(context, column_partials(args.a.dim(0), args.a.dim(1), 1));
  };
  if (!args.bias_gradient) return alone();
  if (args.bias || args.c.dtype() != DType::f32) return unfused();
  const Tensor sums = context.empty({args.c.dim(0)}, DType::f32, Category::workspace);
  if (!by_time) return;
  // The fused product is timed against the product in steps.
  const Tensor other = args.accumulate ? like(args.c) : Tensor();
  const Tensor other_sums = like(args.bias_gradient);
  unfused();
}

void reserve_bias_backward(const Access&, Context& context, const Tensor& grad_y, const Tensor&) {
  reserve_for<float>(context, column_partials(grad_y.dim(0), grad_y.dim(1), 1));
}

void reserve_norm_weight(const Access&, Context& context, const NormWeightArgs& args) {
  reserve_for<float>(context, column_partials(args.x.dim(0), args.x.dim(1), 2));
}

void reserve_head_norm_weight(const Access&, Context& context, const HeadNormWeightArgs& args) {
  reserve_for<float>(context,
                     column_partials(args.heads * args.x.rows.dim(0), args.grad_weight.dim(0), 2));
}

void reserve_sum(const Access&, Context& context, const Tensor& x, const Tensor&) {
  if (x.numel() > ordered_chunk) reserve_for<double>(context, ordered_partials(x.numel()));
}

// CUB sorts between two copies of ids and rows.
void reserve_embedding(const Access&, Context& context, const EmbeddingBackwardArgs& args) {
  const std::int64_t tokens = args.ids.numel();
  if (tokens == 0) return;
  const auto workspace = static_cast<std::size_t>(tokens) * 8;
  reserve(context, EmbeddingScratch(tokens, args.grad_table.dim(1), workspace).bytes);
}

void reserve_routing_sums(const Access&, Context& context, const RoutingSumsArgs& args) {
  reserve_for<double>(context, routing_totals(args.logits.dim(0)));
}
void reserve_grouped_gemm(const Access&, Context& context, const GroupedGemmArgs& args) {
  reserve_for<std::int64_t>(context, 2 * grouped_tiles(args.a.dim(0), args.ends.dim(0)));
}

void reserve_attention_backward(const Access&, Context& context,
                                const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.forward.shape;
  const bool fused = fused_attention_covers(args.forward);
  const std::int64_t sums = attention_deltas(shape);
  const auto takes = [&](bool deterministic) {
    return sums + (fused ? fused_attention_partials(shape, deterministic) : 0);
  };
  const auto possible = [](std::int64_t elements) {
    return elements * std::int64_t{sizeof(float)} <= fused_attention_most;
  };
  // A case that needs too much on Hopper runs on our kernels there; other GPUs need less and use
  // cuDNN.
  const bool deterministic = context.kernel_options().deterministic && possible(takes(true));
  reserve_for<float>(context, possible(takes(deterministic)) ? takes(deterministic) : sums);
}

void reserve_rotary(const Access&, Context& context, const RotaryArgs& args) {
  auto& planned = context.kernel_state<Planned>();
  const std::int64_t positions = args.tabulated();
  if (planned.rotary && planned.rotary_positions == positions &&
      planned.rotary_head_dim == args.head_dim && planned.rotary_frequencies == args.frequencies) {
    return;
  }
  planned.rotary = context.empty({positions * args.head_dim}, DType::f32, Category::workspace);
  planned.rotary_positions = positions;
  planned.rotary_head_dim = args.head_dim;
  planned.rotary_frequencies = args.frequencies;
}

void reserve_squares(const Access&, Context& context, const AdafactorSquares& args) {
  const AdafactorPart& part = args.part;
  const std::int64_t n = part.weight.numel();
  if (n == 0) return;
  reserve_for<double>(context, ordered_partials(n));
  if (!args.rows) return;
  const int pack = 16 / static_cast<int>(size_of(part.gradient.dtype()));
  const bool wide = part.begin % pack == 0 && part.columns % pack == 0 && n % pack == 0;
  reserve_for<double>(context, AdafactorTiles(part, wide ? pack : 1).partials);
}
void reserve_size(const Access&, Context& context, const AdafactorSize& args) {
  reserve_for<double>(context, ordered_partials(args.part.weight.numel()));
}

}  // namespace
}  // namespace trident::cuda

namespace trident {

const Backend& planning_cuda_backend() {
  static const Backend backend = [] {
    Backend b = planning_cpu_backend();
    b.instructions = [] { return std::string("cuda"); };
    b.gemm = cuda::reserve_gemm;
    b.bias_backward = cuda::reserve_bias_backward;
    b.sum = cuda::reserve_sum;
    b.norm_backward_weight = cuda::reserve_norm_weight;
    b.head_norm_backward_weight = cuda::reserve_head_norm_weight;
    b.embedding_backward = cuda::reserve_embedding;
    b.routing_sums = cuda::reserve_routing_sums;
    b.grouped_gemm = cuda::reserve_grouped_gemm;
    b.grouped_weight_gemm = [](const Access&, Context&, const GroupedWeightGemmArgs&) {};
    b.cross_entropy = [](const Access&, Context&, const CrossEntropyShape&, const Tensor&,
                         const Tensor&, const Tensor&, std::optional<float>) {};
    b.attention_forward = [](const Access&, Context&, const AttentionArgs&) {};
    b.attention_cached = [](const Access&, Context&, const CacheArgs&, const Tensor&) {};
    b.attention_backward = cuda::reserve_attention_backward;
    b.rotary = cuda::reserve_rotary;
    b.adafactor_squares = cuda::reserve_squares;
    b.adafactor_size = cuda::reserve_size;
    return b;
  }();
  return backend;
}

}  // namespace trident
