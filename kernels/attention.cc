#include "kernels/attention.h"

#include "kernels/attention_check.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_heads(const Check& check, const AttentionShape& shape, const Tensor& x, const char* name,
                 DType dtype) {
  check.dtype(x, name, dtype);
  check.shape(x, name, {shape.batch * shape.sequence, shape.heads * shape.head_dim});
}

void check_cache(const Check& check, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  check_projection(check, shape, args.qkv, "qkv");
  check.dtype(args.cache, "cache", args.qkv.dtype());
  const std::int64_t positions = args.cache.shape().rank() == 3 ? args.cache.dim(1) : 0;
  check.shape(args.cache, "cache", {shape.batch, positions, 2 * shape.groups * shape.head_dim});
  check.that(args.begin >= 0 && args.begin + shape.sequence <= positions,
             "positions " + std::to_string(args.begin) + " to " +
                 std::to_string(args.begin + shape.sequence),
             "up to " + std::to_string(positions));
}

void check_log_sums(const Check& check, const AttentionShape& shape, const Tensor& x) {
  check.dtype(x, "log_sum_exp", DType::f32);
  check.shape(x, "log_sum_exp", {shape.batch, shape.heads, shape.sequence});
}

void check_dropout(const Check& check, const AttentionShape& shape, const DropoutArgs& dropout) {
  const float p = dropout.probability;
  check.that(p >= 0 && p < 1, "probability " + std::to_string(p), "0 to below 1");
  if (p > 0) {
    check.dtype(dropout.samples, "samples", DType::i64);
    check.shape(dropout.samples, "samples", {shape.batch});
  }
}

}  // namespace

void attention_forward(Context& context, const AttentionArgs& args) {
  const Check check("attention_forward");
  check_projection(check, args.shape, args.qkv, "qkv");
  check_heads(check, args.shape, args.out, "out", args.qkv.dtype());
  check_log_sums(check, args.shape, args.log_sum_exp);
  check_dropout(check, args.shape, args.dropout);
  launch(context, &Backend::attention_forward, args);
}

void append_to_cache(Context& context, const CacheArgs& args) {
  check_cache(Check("append_to_cache"), args);
  launch(context, &Backend::append_to_cache, args);
}

void attention_cached(Context& context, const CacheArgs& args, const Tensor& out) {
  const Check check("attention_cached");
  check_cache(check, args);
  check_heads(check, args.shape, out, "out", args.qkv.dtype());
  launch(context, &Backend::attention_cached, args, out);
}

void attention_backward(Context& context, const AttentionBackwardArgs& args) {
  const Check check("attention_backward");
  check_projection(check, args.shape, args.qkv, "qkv");
  check_projection(check, args.shape, args.grad_qkv, "grad_qkv");
  check.dtype(args.grad_qkv, "grad_qkv", args.qkv.dtype());
  check_heads(check, args.shape, args.out, "out", args.qkv.dtype());
  check_heads(check, args.shape, args.grad_out, "grad_out", args.qkv.dtype());
  check_log_sums(check, args.shape, args.log_sum_exp);
  check_dropout(check, args.shape, args.dropout);
  launch(context, &Backend::attention_backward, args);
}

}  // namespace trident
