// One vector of floats, as wide as the instruction set this file is compiled for.
//
// The files of this folder are compiled once per instruction set, each time in a namespace of its
// own (TRIDENT_ISA) and with TRIDENT_ISA_WIDTH floats a vector. Everything here has internal
// linkage and nothing calls an inline function of the standard library: the linker would keep one
// of the three copies, and a machine without AVX-512 could get that one.
//
// Multiply-adds are fused only where the code says fma(), so that an element's value does not
// depend on the loop, tail or tile in which it was computed.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/dtype.h"

#define TRIDENT_INLINE static inline __attribute__((always_inline))

namespace trident::cpu::simd::TRIDENT_ISA {

inline constexpr int W = TRIDENT_ISA_WIDTH;  // floats in a vector

typedef float F __attribute__((vector_size(4 * W)));
typedef std::int32_t I __attribute__((vector_size(4 * W)));
typedef double D __attribute__((vector_size(4 * W)));  // half as many

TRIDENT_INLINE I bits(F x) {
  return (I)x;
}
TRIDENT_INLINE F floats(I x) {
  return (F)x;
}

#if TRIDENT_ISA_WIDTH == 16

TRIDENT_INLINE F splat(float x) {
  return _mm512_set1_ps(x);
}
TRIDENT_INLINE F load(const float* p) {
  return _mm512_loadu_ps(p);
}
TRIDENT_INLINE void store(float* p, F x) {
  _mm512_storeu_ps(p, x);
}
TRIDENT_INLINE __mmask16 first(std::int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
TRIDENT_INLINE F load_n(const float* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}
TRIDENT_INLINE void store_n(float* p, F x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), x);
}
TRIDENT_INLINE F widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
TRIDENT_INLINE __m256i narrow(F x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __m512i nan = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(
      _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
}
TRIDENT_INLINE F load(const BFloat16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TRIDENT_INLINE void store(BFloat16* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
}
TRIDENT_INLINE F load_n(const BFloat16* p, std::int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(first(n), p));
}
TRIDENT_INLINE void store_n(BFloat16* p, F x, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), narrow(x));
}
TRIDENT_INLINE F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
TRIDENT_INLINE F square_root(F x) {
  return _mm512_sqrt_ps(x);
}
TRIDENT_INLINE F max(F a, F b) {  // b where either is NaN
  return _mm512_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm512_min_ps(a, b);
}
TRIDENT_INLINE I nearest(F x) {
  return (I)_mm512_cvtps_epi32(x);
}
TRIDENT_INLINE F to_float(I x) {
  return _mm512_cvtepi32_ps((__m512i)x);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), then);
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in n lanes, then rest
  return _mm512_mask_mov_ps(rest, first(n), x);
}
TRIDENT_INLINE D low(F x) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
TRIDENT_INLINE D high(F x) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

#elif TRIDENT_ISA_WIDTH == 8

TRIDENT_INLINE F splat(float x) {
  return _mm256_set1_ps(x);
}
TRIDENT_INLINE F load(const float* p) {
  return _mm256_loadu_ps(p);
}
TRIDENT_INLINE void store(float* p, F x) {
  _mm256_storeu_ps(p, x);
}
TRIDENT_INLINE __m256i first(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TRIDENT_INLINE F load_n(const float* p, std::int64_t n) {
  return _mm256_maskload_ps(p, first(n));
}
TRIDENT_INLINE void store_n(float* p, F x, std::int64_t n) {
  _mm256_maskstore_ps(p, first(n), x);
}
TRIDENT_INLINE F widen(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
TRIDENT_INLINE __m128i narrow(F x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  const __m256i word =
      _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m256i packed = _mm256_packus_epi32(word, word);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
TRIDENT_INLINE F fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}
TRIDENT_INLINE F square_root(F x) {
  return _mm256_sqrt_ps(x);
}
TRIDENT_INLINE F max(F a, F b) {  // b where either is NaN
  return _mm256_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm256_min_ps(a, b);
}
TRIDENT_INLINE I nearest(F x) {
  return (I)_mm256_cvtps_epi32(x);
}
TRIDENT_INLINE F to_float(I x) {
  return _mm256_cvtepi32_ps((__m256i)x);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in n lanes, then rest
  return _mm256_blendv_ps(rest, x, _mm256_castsi256_ps(first(n)));
}
TRIDENT_INLINE D low(F x) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
TRIDENT_INLINE D high(F x) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
TRIDENT_INLINE F load(const BFloat16* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TRIDENT_INLINE void store(BFloat16* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x));
}

#else

TRIDENT_INLINE F splat(float x) {
  return _mm_set1_ps(x);
}
TRIDENT_INLINE F load(const float* p) {
  return _mm_loadu_ps(p);
}
TRIDENT_INLINE void store(float* p, F x) {
  _mm_storeu_ps(p, x);
}
TRIDENT_INLINE F load_n(const float* p, std::int64_t n) {
  F x{};
  for (int i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
TRIDENT_INLINE void store_n(float* p, F x, std::int64_t n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
TRIDENT_INLINE F load(const BFloat16* p) {
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), x));
}
TRIDENT_INLINE __m128i narrow(F x) {
  const __m128i u = _mm_castps_si128(x);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(u, _mm_set1_epi32(0x7fff)), odd);
  const __m128i nan = _mm_or_si128(u, _mm_set1_epi32(0x400000));
  const __m128i unordered = _mm_castps_si128(_mm_cmpunord_ps(x, x));
  const __m128i word =
      _mm_or_si128(_mm_and_si128(unordered, nan), _mm_andnot_si128(unordered, rounded));
  const __m128i shifted = _mm_srai_epi32(word, 16);  // signed, so that the pack does not saturate
  return _mm_packs_epi32(shifted, shifted);
}
TRIDENT_INLINE void store(BFloat16* p, F x) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), narrow(x));
}
TRIDENT_INLINE F fma(F a, F b, F c) {
  return a * b + c;
}
TRIDENT_INLINE F square_root(F x) {
  return _mm_sqrt_ps(x);
}
TRIDENT_INLINE F max(F a, F b) {  // b where either is NaN
  return _mm_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm_min_ps(a, b);
}
TRIDENT_INLINE I nearest(F x) {
  return (I)_mm_cvtps_epi32(x);
}
TRIDENT_INLINE F to_float(I x) {
  return _mm_cvtepi32_ps((__m128i)x);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  const __m128 mask = _mm_cmplt_ps(a, b);
  return _mm_or_ps(_mm_and_ps(mask, then), _mm_andnot_ps(mask, otherwise));
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in n lanes, then rest
  for (int i = 0; i < n; ++i) rest[i] = x[i];
  return rest;
}
TRIDENT_INLINE D low(F x) {
  return _mm_cvtps_pd(x);
}
TRIDENT_INLINE D high(F x) {
  return _mm_cvtps_pd(_mm_movehl_ps(x, x));
}

#endif

#if TRIDENT_ISA_WIDTH != 16
TRIDENT_INLINE F load_n(const BFloat16* p, std::int64_t n) {
  BFloat16 part[W];
  for (int i = 0; i < W; ++i) part[i].bits = i < n ? p[i].bits : std::uint16_t{0};
  return load(part);
}
TRIDENT_INLINE void store_n(BFloat16* p, F x, std::int64_t n) {
  BFloat16 part[W];
  store(part, x);
  for (int i = 0; i < n; ++i) p[i].bits = part[i].bits;
}
#endif

// Halves are added until one lane is left.
TRIDENT_INLINE float sum_lanes(F x) {
#if TRIDENT_ISA_WIDTH == 16
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#elif TRIDENT_ISA_WIDTH == 8
  const __m256 half = x;
#endif
#if TRIDENT_ISA_WIDTH >= 8
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#else
  const __m128 four = x;
#endif
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
TRIDENT_INLINE float max_lanes(F x) {
#if TRIDENT_ISA_WIDTH == 16
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#elif TRIDENT_ISA_WIDTH == 8
  const __m256 half = x;
#endif
#if TRIDENT_ISA_WIDTH >= 8
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#else
  const __m128 four = x;
#endif
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// exp(x) with a relative error below 2e-7; 0 below -86.6, infinity above 88.7, NaN of NaN.
// Cody & Waite's reduction and the polynomial of Cephes (Moshier).
TRIDENT_INLINE F exp(F x) {
  const F low_end = splat(-86.6f), high_end = splat(88.72283f);
#if TRIDENT_ISA_WIDTH == 16
  const F t = min(high_end + splat(0.1f), x);  // x where it is NaN
  const F nf = _mm512_roundscale_ps(t * splat(1.44269504088896341f), 0);
#else
  F t = less(x, low_end, low_end, x);
  t = less(high_end, t, high_end, t);
  const I n = nearest(t * splat(1.44269504088896341f));
  const F nf = to_float(n);
#endif
  F r = fma(nf, splat(-0.693359375f), t);
  r = fma(nf, splat(2.12194440e-4f), r);
  F p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
#if TRIDENT_ISA_WIDTH == 16
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low_end, _CMP_NLT_UQ), p, nf);
#else
  // 2^n in two factors, because n may be 128.
  p = p * floats((n + 126) << 23) * splat(2.0f);
  p = less(x, low_end, F{}, p);
  return less(high_end, x, splat(__builtin_inff()), p);
#endif
}

// 1 / x for normal x with a normal result; a division where there is no estimate to refine.
TRIDENT_INLINE F inverse(F x) {
#if TRIDENT_ISA_WIDTH == 16
  const F y = _mm512_rcp14_ps(x);
  return fma(fma(-x, y, splat(1.0f)), y, y);
#else
  return splat(1.0f) / x;
#endif
}

// How many lanes of a vector are in memory: all, or the first n.
struct All {};
struct Some {
  std::int64_t n;
};
template <class T>
TRIDENT_INLINE F load(const T* p, All) {
  return load(p);
}
template <class T>
TRIDENT_INLINE F load(const T* p, Some some) {
  return load_n(p, some.n);  // 0 in the other lanes
}
template <class T>
TRIDENT_INLINE void store(T* p, F x, All) {
  store(p, x);
}
template <class T>
TRIDENT_INLINE void store(T* p, F x, Some some) {
  store_n(p, x, some.n);
}

TRIDENT_INLINE F only(F x, All, F = F{}) {
  return x;
}
TRIDENT_INLINE F only(F x, Some some, F rest = F{}) {
  return first_n(x, rest, some.n);
}

// Calls step(i, lanes) for each vector of [0, n).
template <class Step>
TRIDENT_INLINE void each(std::int64_t n, Step step) {
  std::int64_t i = 0;
  for (; i + W <= n; i += W) step(i, All{});
  if (i < n) step(i, Some{n - i});
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
