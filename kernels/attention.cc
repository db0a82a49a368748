#include "kernels/attention.h"

#include <algorithm>

#include "kernels/attention_check.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_rows(const Check& check, const AttentionShape& shape, const Tensor& x, const char* name,
                DType dtype) {
  check.dtype(x, name, dtype);
  check.shape(x, name, {shape.batch * shape.sequence, shape.out_row()});
}

void check_operands(const Check& check, const AttentionShape& shape, const QueryKeyValue& in,
                    DType dtype) {
  const std::int64_t keys = shape.batch * shape.keys();
  check_heads(check, in.query, "query", dtype, shape.batch * shape.sequence, shape.heads,
              shape.head_dim);
  check_heads(check, in.key, "key", dtype, keys, shape.groups, shape.head_dim);
  check_heads(check, in.value, "value", dtype, keys, shape.groups, shape.value_dim());
}

void check_sinks(const Check& check, const AttentionShape& shape, const Tensor& sinks,
                 DType dtype) {
  if (!sinks) return;
  check.dtype(sinks, "sinks", dtype);
  check.shape(sinks, "sinks", {shape.heads});
}

void check_mask(const Check& check, const AttentionShape& shape, const AttentionMask& mask) {
  if (mask.query_begin < 0 || mask.key_begin < 0 || mask.window < 0) {
    check.that(false,
               "queries from " + std::to_string(mask.query_begin) + ", keys from " +
                   std::to_string(mask.key_begin) + ", window " + std::to_string(mask.window),
               "at least 0");
  }
  if (!mask.document_begins) return;
  check.dtype(mask.document_begins, "document_begins", DType::i64);
  check.shape(mask.document_begins, "document_begins", {shape.batch, shape.sequence});
}

void check_dropout(const Check& check, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const float p = args.dropout.probability;
  check.that(p >= 0 && p < 1, "probability " + std::to_string(p), "0 to below 1");
  if (p == 0) return;
  check.dtype(args.dropout.samples, "samples", DType::i64);
  check.shape(args.dropout.samples, "samples", {shape.batch});
  const std::int64_t positions = args.dropout_positions > 0 ? args.dropout_positions : shape.keys();
  const std::int64_t end =
      std::max(args.mask.query_begin + shape.sequence, args.mask.key_begin + shape.keys());
  check.that(end <= positions, "positions up to " + std::to_string(end),
             "up to dropout_positions, " + std::to_string(positions));
}

// The checks that forward and backward share.
void check_attention(const Check& check, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(check, shape);
  check.compute_dtype(args.in.query.rows, "query");
  const DType dtype = args.in.query.rows.dtype();
  check_operands(check, shape, args.in, dtype);
  check_rows(check, shape, args.out, "out", dtype);
  check.dtype(args.log_sum_exp, "log_sum_exp", DType::f32);
  check.shape(args.log_sum_exp, "log_sum_exp", {shape.batch, shape.heads, shape.sequence});
  check_mask(check, shape, args.mask);
  check_sinks(check, shape, args.sinks, dtype);
  check_dropout(check, args);
}

void check_cache(const Check& check, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(check, shape);
  check.compute_dtype(args.cache, "cache");
  const std::int64_t positions = args.cache.shape().rank() == 3 ? args.cache.dim(1) : 0;
  check.shape(args.cache, "cache",
              {shape.batch, positions, shape.groups * (shape.head_dim + shape.value_dim())});
  check.that(args.skipped >= 0 && args.skipped <= shape.sequence,
             std::to_string(args.skipped) + " rows left out",
             "up to " + std::to_string(shape.sequence));
  check.that(args.cache_begin >= 0 && args.begin + args.skipped >= args.cache_begin &&
                 args.begin + shape.sequence <= args.cache_begin + positions,
             "positions " + std::to_string(args.begin + args.skipped) + " to " +
                 std::to_string(args.begin + shape.sequence),
             "from " + std::to_string(args.cache_begin) + " up to " +
                 std::to_string(args.cache_begin + positions));
}

}  // namespace

QueryKeyValue split_qkv(const AttentionShape& shape, const Tensor& qkv) {
  return {.query = {qkv, 0},
          .key = {qkv, shape.heads * shape.head_dim},
          .value = {qkv, (shape.heads + shape.groups) * shape.head_dim}};
}

void attention_forward(Context& context, const AttentionArgs& args) {
  check_attention(Check("attention_forward"), args);
  launch(context, &Backend::attention_forward, args);
}

void attention_backward(Context& context, const AttentionBackwardArgs& args) {
  const Check check("attention_backward");
  const AttentionShape& shape = args.forward.shape;
  check_attention(check, args.forward);
  const DType dtype = args.forward.out.dtype();
  check_operands(check, shape, args.grad, dtype);
  check_rows(check, shape, args.grad_out, "grad_out", dtype);
  if (args.forward.sinks) {
    check.dtype(args.grad_sinks, "grad_sinks", DType::f32);
    check.shape(args.grad_sinks, "grad_sinks", {shape.heads});
  }
  launch(context, &Backend::attention_backward, args);
}

void merge_attention(Context& context, const AttentionMergeArgs& args) {
  const Check check("merge_attention");
  const AttentionShape& shape = args.shape;
  check_attention_shape(check, shape);
  check.compute_dtype(args.part, "part");
  check_rows(check, shape, args.part, "part", args.part.dtype());
  check_rows(check, shape, args.out, "out", DType::f32);
  const auto check_sums = [&](const Tensor& x, const char* name) {
    check.dtype(x, name, DType::f32);
    check.shape(x, name, {shape.batch, shape.heads, shape.sequence});
  };
  check_sums(args.part_log_sum_exp, "part_log_sum_exp");
  check_sums(args.log_sum_exp, "log_sum_exp");
  launch(context, &Backend::merge_attention, args);
}

void append_to_cache(Context& context, const CacheArgs& args) {
  const Check check("append_to_cache");
  check_cache(check, args);
  const AttentionShape& shape = args.shape;
  const std::int64_t rows = shape.batch * shape.sequence;
  const DType dtype = args.cache.dtype();
  check_heads(check, args.in.key, "key", dtype, rows, shape.groups, shape.head_dim);
  check_heads(check, args.in.value, "value", dtype, rows, shape.groups, shape.value_dim());
  launch(context, &Backend::append_to_cache, args);
}

void attention_cached(Context& context, const CacheArgs& args, const Tensor& out) {
  const Check check("attention_cached");
  check_cache(check, args);
  const AttentionShape& shape = args.shape;
  const DType dtype = args.cache.dtype();
  check_heads(check, args.in.query, "query", dtype, shape.batch * shape.sequence, shape.heads,
              shape.head_dim);
  check_sinks(check, shape, args.sinks, dtype);
  check.that(args.window >= 0, "window " + std::to_string(args.window), "at least 0");
  const std::int64_t oldest =
      args.window > 0 ? std::max<std::int64_t>(0, args.begin - args.window + 1) : 0;
  check.that(args.skipped == 0 && args.cache_begin <= oldest,
             "a cache from position " + std::to_string(args.cache_begin) + " on",
             "one that holds position " + std::to_string(oldest));
  check_rows(check, shape, out, "out", dtype);
  launch(context, &Backend::attention_cached, args, out);
}

}  // namespace trident
