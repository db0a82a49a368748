#include "kernels/embedding.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_ids(const Check& check, const Tensor& ids) {
  check.dtype(ids, "ids", DType::i32);
  check.rank(ids, "ids", 1);
}

void check_positions(const Check& check, const Tensor& table, std::int64_t sequence,
                     std::int64_t first_row, std::int64_t begin = 0) {
  check.that(sequence > 0 && begin >= 0 && begin + sequence <= table.dim(0),
             "sequence " + std::to_string(sequence) + " from " + std::to_string(begin),
             "1 to the table's " + std::to_string(table.dim(0)) + " positions");
  check.that(first_row >= 0, "first_row " + std::to_string(first_row), "0 or more");
}

}  // namespace

void embedding_forward(Context& context, const EmbeddingArgs& args) {
  const Check check("embedding_forward");
  check_ids(check, args.ids);
  check.compute_dtype(args.table, "table");
  check.rank(args.table, "table", 2);
  check.dtype(args.out, "out", args.table.dtype());
  check.shape(args.out, "out", {args.ids.dim(0), args.table.dim(1)});
  launch(context, &Backend::embedding_forward, args);
}

void embedding_backward(Context& context, const EmbeddingBackwardArgs& args) {
  const Check check("embedding_backward");
  check_ids(check, args.ids);
  check.compute_dtype(args.grad_table, "grad_table");
  check.rank(args.grad_table, "grad_table", 2);
  check.compute_dtype(args.grad_out, "grad_out");
  check.shape(args.grad_out, "grad_out", {args.ids.dim(0), args.grad_table.dim(1)});
  launch(context, &Backend::embedding_backward, args);
}

void position_forward(Context& context, const PositionArgs& args) {
  const Check check("position_forward");
  check.compute_dtype(args.table, "table");
  check.rank(args.table, "table", 2);
  check.dtype(args.x, "x", args.table.dtype());
  check.rank(args.x, "x", 2);
  check.shape(args.x, "x", {args.x.dim(0), args.table.dim(1)});
  check_positions(check, args.table, args.sequence, args.first_row, args.begin);
  launch(context, &Backend::position_forward, args);
}

void position_backward(Context& context, const PositionBackwardArgs& args) {
  const Check check("position_backward");
  check.compute_dtype(args.grad_table, "grad_table");
  check.rank(args.grad_table, "grad_table", 2);
  check.compute_dtype(args.grad_x, "grad_x");
  check.rank(args.grad_x, "grad_x", 2);
  check.shape(args.grad_x, "grad_x", {args.grad_x.dim(0), args.grad_table.dim(1)});
  check_positions(check, args.grad_table, args.sequence, args.first_row);
  launch(context, &Backend::position_backward, args);
}

}  // namespace trident
