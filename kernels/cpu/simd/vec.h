// One vector of floats, as wide as the instruction set this file is compiled for.
//
// The files of this folder are compiled once per instruction set, each time in a namespace of its
// own (TRIDENT_ISA) and with TRIDENT_ISA_WIDTH floats in a vector. Everything here has internal
// linkage, and nothing calls an inline function of the standard library. The linker would keep only
// one of the three copies of such a function, and a machine without AVX-512 could get the AVX-512
// copy.
//
// Multiply-adds are fused only where the code says fma(), so an element's value does not depend on
// the loop, tail or tile that computes it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/dtype.h"

#define TRIDENT_INLINE static inline __attribute__((always_inline))

namespace trident::cpu::simd::TRIDENT_ISA {

inline constexpr int W = TRIDENT_ISA_WIDTH;  // floats in a vector

typedef float F __attribute__((vector_size(4 * W)));
typedef std::int32_t I __attribute__((vector_size(4 * W)));
typedef double D __attribute__((vector_size(4 * W)));  // half as many lanes

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
TRIDENT_INLINE F load(const Float16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TRIDENT_INLINE void store(Float16* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
TRIDENT_INLINE F load_n(const Float16* p, std::int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
TRIDENT_INLINE void store_n(Float16* p, F x, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
TRIDENT_INLINE F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
TRIDENT_INLINE F square_root(F x) {
  return _mm512_sqrt_ps(x);
}
TRIDENT_INLINE F max(F a, F b) {  // b if either is NaN
  return _mm512_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm512_min_ps(a, b);
}
TRIDENT_INLINE F rounded(F x) {  // to the nearest integer
  return _mm512_roundscale_ps(x, 0);
}
// p · 2^n for p in [0.7, 1.5), n = rounded(x · log2(e)). The result is 0 if x < low, NaN if x is
// NaN.
TRIDENT_INLINE F with_exponent(F p, F n, F x, float low) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, splat(low), _CMP_NLT_UQ), p, n);
}
// 1 / x for normal x with a normal result.
TRIDENT_INLINE F inverse(F x) {
  const F y = _mm512_rcp14_ps(x);
  return fma(_mm512_fnmadd_ps(x, y, splat(1.0f)), y, y);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), then);
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in the first n lanes, then rest
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
TRIDENT_INLINE F max(F a, F b) {  // b if either is NaN
  return _mm256_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm256_min_ps(a, b);
}
TRIDENT_INLINE I nearest(F x) {
  return (I)_mm256_cvtps_epi32(x);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in the first n lanes, then rest
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
TRIDENT_INLINE F load(const Float16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TRIDENT_INLINE void store(Float16* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
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
TRIDENT_INLINE F load(const Float16* p) {  // no instruction: core/dtype.cc converts
  F x;
  for (int i = 0; i < W; ++i) x[i] = static_cast<float>(p[i]);
  return x;
}
TRIDENT_INLINE void store(Float16* p, F x) {
  for (int i = 0; i < W; ++i) p[i] = Float16(x[i]);
}
TRIDENT_INLINE F fma(F a, F b, F c) {
  return a * b + c;
}
TRIDENT_INLINE F square_root(F x) {
  return _mm_sqrt_ps(x);
}
TRIDENT_INLINE F max(F a, F b) {  // b if either is NaN
  return _mm_max_ps(a, b);
}
TRIDENT_INLINE F min(F a, F b) {
  return _mm_min_ps(a, b);
}
TRIDENT_INLINE I nearest(F x) {
  return (I)_mm_cvtps_epi32(x);
}
TRIDENT_INLINE F less(F a, F b, F then, F otherwise) {  // a < b ? then : otherwise
  const __m128 mask = _mm_cmplt_ps(a, b);
  return _mm_or_ps(_mm_and_ps(mask, then), _mm_andnot_ps(mask, otherwise));
}
TRIDENT_INLINE F first_n(F x, F rest, std::int64_t n) {  // x in the first n lanes, then rest
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
TRIDENT_INLINE F rounded(F x) {
  return __builtin_convertvector(nearest(x), F);
}
TRIDENT_INLINE F with_exponent(F p, F n, F x, float low) {
  // Multiplies by two factors, because n may be 128.
  return less(x, splat(low), F{}, p * floats((nearest(n) + 126) << 23) * splat(2.0f));
}
TRIDENT_INLINE F inverse(F x) {
  return splat(1.0f) / x;
}
template <class T>
TRIDENT_INLINE F load_part(const T* p, std::int64_t n) {
  T part[W];
  for (int i = 0; i < W; ++i) part[i].bits = i < n ? p[i].bits : std::uint16_t{0};
  return load(part);
}
template <class T>
TRIDENT_INLINE void store_part(T* p, F x, std::int64_t n) {
  T part[W];
  store(part, x);
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): store() has filled it
  for (int i = 0; i < n; ++i) p[i].bits = part[i].bits;
}
TRIDENT_INLINE F load_n(const BFloat16* p, std::int64_t n) {
  return load_part(p, n);
}
TRIDENT_INLINE void store_n(BFloat16* p, F x, std::int64_t n) {
  store_part(p, x, n);
}
TRIDENT_INLINE F load_n(const Float16* p, std::int64_t n) {
  return load_part(p, n);
}
TRIDENT_INLINE void store_n(Float16* p, F x, std::int64_t n) {
  store_part(p, x, n);
}
#endif

// Adds halves until one lane is left.
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

}  // namespace trident::cpu::simd::TRIDENT_ISA
