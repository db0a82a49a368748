#pragma once

#include "core/dtype.h"

using __nv_bfloat16 = trident::BFloat16;
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return trident::BFloat16(x);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.bits;
}
