// The check that the kernels on a projection of queries, keys and values share.
#pragma once

#include <string>

#include "kernels/attention.h"
#include "kernels/check.h"

namespace trident {

// Error where `shape` is none, or `qkv` isn't (B·S, (A + 2G)·D) of a type that kernels compute in.
inline void check_projection(const Check& check, const AttentionShape& shape, const Tensor& qkv,
                             const char* name) {
  check.that(
      shape.batch >= 0 && shape.sequence > 0 && shape.head_dim > 0,
      "sequence " + std::to_string(shape.sequence) + ", head_dim " + std::to_string(shape.head_dim),
      "at least 1");
  check.that(shape.groups > 0 && shape.heads > 0 && shape.heads % shape.groups == 0,
             std::to_string(shape.heads) + " heads in " + std::to_string(shape.groups) + " groups",
             "the same number of heads in each group");
  check.compute_dtype(qkv, name);
  check.shape(qkv, name, {shape.batch * shape.sequence, shape.row()});
}

}  // namespace trident
