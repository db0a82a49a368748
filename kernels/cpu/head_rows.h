// The rows of attention heads as the inner loops take them. Private to kernels/cpu.
#pragma once

#include <type_traits>

#include "kernels/by_dtype.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/state.h"
#include "kernels/head_columns.h"

namespace trident::cpu {

// The rows of a tensor from the first element of its first head on.
template <class T>
simd::Rows<T> head_rows(const Access& access, const HeadColumns& x) {
  return {data<std::remove_const_t<T>>(access, x.rows) + x.begin, x.rows.dim(1)};
}

}  // namespace trident::cpu
