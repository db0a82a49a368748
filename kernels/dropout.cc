#include "kernels/dropout.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {

void dropout_add(Context& context, const DropoutAddArgs& args) {
  const Check check("dropout_add");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.y, "y", args.x.dtype());
  check.shape(args.y, "y", args.x.shape());
  if (args.residual) {
    check.dtype(args.residual, "residual", args.x.dtype());
    check.shape(args.residual, "residual", args.x.shape());
  }
  const float p = args.dropout.probability;
  check.that(p >= 0 && p < 1, "probability " + std::to_string(p), "0 to below 1");
  if (p > 0) {
    check.that(args.sequence > 0, "sequence " + std::to_string(args.sequence), "at least 1");
    check.that(args.first_row >= 0, "first_row " + std::to_string(args.first_row), "0 or more");
    check.dtype(args.dropout.samples, "samples", DType::i64);
    check.that(args.first_row + args.x.dim(0) <= args.dropout.samples.numel() * args.sequence,
               Check::describe(args.dropout.samples, "samples"),
               "one for each sequence of " + std::to_string(args.sequence) + " rows");
    if (args.places) {
      check.dtype(args.places, "places", DType::i32);
      check.shape(args.places, "places", {args.dropout.samples.numel() * args.sequence});
    }
  }
  launch(context, &Backend::dropout_add, args);
}

}  // namespace trident
