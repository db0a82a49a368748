#include "kernels/heads.h"

#include <string>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_parts(const Check& check, const HeadPartsArgs& args) {
  check.that(args.heads > 0 && args.dim > 0,
             std::to_string(args.heads) + " heads of " + std::to_string(args.dim), "at least 1");
  check.compute_dtype(args.from.rows, "from");
  const auto one = [&](const HeadParts& parts, const char* name) {
    check.dtype(parts.rows, name, args.from.rows.dtype());
    check.rank(parts.rows, name, 2);
    check.that(parts.rows.dim(0) == args.from.rows.dim(0), Check::describe(parts.rows, name),
               std::to_string(args.from.rows.dim(0)) + " rows");
    const bool apart = parts.stride == 0 || parts.stride >= args.dim;
    check.that(parts.begin >= 0 && apart &&
                   parts.begin + (args.heads - 1) * parts.stride + args.dim <= parts.rows.dim(1),
               Check::describe(parts.rows, name) + " from column " + std::to_string(parts.begin) +
                   " by " + std::to_string(parts.stride),
               std::to_string(args.heads) + " parts of " + std::to_string(args.dim));
  };
  one(args.from, "from");
  one(args.to, "to");
}

}  // namespace

void copy_heads(Context& context, const HeadPartsArgs& args) {
  const Check check("copy_heads");
  check_parts(check, args);
  check.that(args.heads == 1 || args.to.stride > 0, "heads in one place", "a stride");
  launch(context, &Backend::copy_heads, args);
}

void sum_heads(Context& context, const HeadPartsArgs& args) {
  const Check check("sum_heads");
  check_parts(check, args);
  check.that(args.to.stride == 0, "a stride of the sum", "one part");
  launch(context, &Backend::sum_heads, args);
}

}  // namespace trident
