// The checks that the kernels on query, key and value heads share.
#pragma once

#include <string>

#include "kernels/attention.h"
#include "kernels/check.h"

namespace trident {

// Error if a size of `shape` is out of range, or its groups do not divide its heads.
inline void check_attention_shape(const Check& check, const AttentionShape& shape) {
  check.that(shape.batch >= 0 && shape.sequence > 0 && shape.key_positions >= 0 &&
                 shape.head_dim > 0 && shape.value_head_dim >= 0,
             "sequence " + std::to_string(shape.sequence) + ", keys " +
                 std::to_string(shape.key_positions) + ", head_dim " +
                 std::to_string(shape.head_dim) + ", value_head_dim " +
                 std::to_string(shape.value_head_dim),
             "at least 1");
  check.that(shape.groups > 0 && shape.heads > 0 && shape.heads % shape.groups == 0,
             std::to_string(shape.heads) + " heads in " + std::to_string(shape.groups) + " groups",
             "the same number of heads in each group");
}

}  // namespace trident
