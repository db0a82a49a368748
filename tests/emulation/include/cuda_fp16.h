#pragma once

#include "core/dtype.h"

using __half = trident::Float16;
inline __half __float2half_rn(float x) {
  return trident::Float16(x);
}
inline unsigned short __half_as_ushort(__half x) {
  return x.bits;
}
inline __half __ushort_as_half(unsigned short bits) {
  __half x;
  x.bits = bits;
  return x;
}
inline float __half2float(__half x) {
  return static_cast<float>(x);
}
