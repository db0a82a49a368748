// Turns an element type known at run time into a template argument. Any thread may call this.
#pragma once

#include <string>

#include "base/error.h"
#include "core/dtype.h"

namespace trident {

// Calls f with a null pointer to the element type: by_dtype(x.dtype(), [&]<class T>(T*) { … }).
// Accepts fp32, bf16 and fp16; throws Error for any other type.
template <class F>
void by_dtype(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f(static_cast<float*>(nullptr));
  } else if (dtype == DType::bf16) {
    f(static_cast<BFloat16*>(nullptr));
  } else if (dtype == DType::f16) {
    f(static_cast<Float16*>(nullptr));
  } else {
    throw Error("kernels: no code for " + std::string(name_of(dtype)));
  }
}

}  // namespace trident
