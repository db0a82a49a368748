#include "kernels/grouped_gemm.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_ends(const Check& check, const Tensor& ends, std::int64_t experts) {
  check.dtype(ends, "ends", DType::i64);
  check.rank(ends, "ends", 1);
  check.that(experts > 0 && ends.dim(0) > 0 && ends.dim(0) % experts == 0,
             Check::describe(ends, "ends"), "an end for each expert of each source");
}

}  // namespace

void grouped_gemm(Context& context, const GroupedGemmArgs& args) {
  const Check check("grouped_gemm");
  check.compute_dtype(args.a, "a");
  check.rank(args.a, "a", 2);
  check.dtype(args.b, "b", args.a.dtype());
  check.rank(args.b, "b", 3);
  const std::int64_t k = args.a.dim(1), n = args.b.dim(args.transpose_b ? 1 : 2);
  check.that(k > 0, "k 0", "at least 1");
  check.shape(args.b, "b",
              args.transpose_b ? Shape{args.b.dim(0), n, k} : Shape{args.b.dim(0), k, n});
  check.dtype(args.c, "c", args.a.dtype());
  check.shape(args.c, "c", {args.a.dim(0), n});
  check_ends(check, args.ends, args.b.dim(0));
  launch(context, &Backend::grouped_gemm, args);
}

void grouped_weight_gemm(Context& context, const GroupedWeightGemmArgs& args) {
  const Check check("grouped_weight_gemm");
  check.compute_dtype(args.a, "a");
  check.rank(args.a, "a", 2);
  check.dtype(args.b, "b", args.a.dtype());
  check.rank(args.b, "b", 2);
  check.shape(args.b, "b", {args.a.dim(0), args.b.dim(1)});
  check.compute_dtype(args.c, "c");
  check.rank(args.c, "c", 3);
  check.shape(args.c, "c", {args.c.dim(0), args.a.dim(1), args.b.dim(1)});
  check_ends(check, args.ends, args.c.dim(0));
  launch(context, &Backend::grouped_weight_gemm, args);
}

}  // namespace trident
