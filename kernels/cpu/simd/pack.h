// Loops over memory, one vector or a pack of vectors at a time. Compiled once per instruction set;
// see kernels/cpu/simd/vec.h.
//
// An operation takes four cycles and two may start in each cycle, so a single vector leaves most of
// the cycles unused. A pack does the same operation on N independent vectors, one after the other.
#pragma once

#include "kernels/cpu/simd/vec.h"

namespace trident::cpu::simd::TRIDENT_ISA {

template <int N>
struct Pack {
  static constexpr int size = N;
  F v[N];
};

TRIDENT_INLINE F part(F x, int) {
  return x;
}
template <int N>
TRIDENT_INLINE F part(const Pack<N>& x, int i) {
  return x.v[i];
}

// The pack type that results from an operation on A, B and C; at least one of them is a pack.
template <class A, class B = F, class C = F>
struct Packed {
  using type = typename Packed<B, C, F>::type;
};
template <int N, class B, class C>
struct Packed<Pack<N>, B, C> {
  using type = Pack<N>;
};
template <>
struct Packed<F, F, F> {};
template <class A, class B = F, class C = F>
using PackOf = typename Packed<A, B, C>::type;

template <class P, class Operation>
TRIDENT_INLINE P each_part(Operation operation) {
  P result;
#pragma GCC unroll 8
  for (int i = 0; i < P::size; ++i) result.v[i] = operation(i);
  return result;
}

template <class A, class B, class P = PackOf<A, B>>
TRIDENT_INLINE P operator+(const A& a, const B& b) {
  return each_part<P>([&](int i) { return part(a, i) + part(b, i); });
}
template <class A, class B, class P = PackOf<A, B>>
TRIDENT_INLINE P operator-(const A& a, const B& b) {
  return each_part<P>([&](int i) { return part(a, i) - part(b, i); });
}
template <class A, class B, class P = PackOf<A, B>>
TRIDENT_INLINE P operator*(const A& a, const B& b) {
  return each_part<P>([&](int i) { return part(a, i) * part(b, i); });
}
template <int N>
TRIDENT_INLINE Pack<N> operator-(const Pack<N>& a) {
  return each_part<Pack<N>>([&](int i) { return -a.v[i]; });
}
template <class A, class B, class C, class P = PackOf<A, B, C>>
TRIDENT_INLINE P fma(const A& a, const B& b, const C& c) {
  return each_part<P>([&](int i) { return fma(part(a, i), part(b, i), part(c, i)); });
}
template <class A, class B, class P = PackOf<A, B>>
TRIDENT_INLINE P min(const A& a, const B& b) {
  return each_part<P>([&](int i) { return min(part(a, i), part(b, i)); });
}
template <class A, class B, class P = PackOf<A, B>>
TRIDENT_INLINE P max(const A& a, const B& b) {
  return each_part<P>([&](int i) { return max(part(a, i), part(b, i)); });
}
template <int N>
TRIDENT_INLINE Pack<N> rounded(const Pack<N>& x) {
  return each_part<Pack<N>>([&](int i) { return rounded(x.v[i]); });
}
template <int N>
TRIDENT_INLINE Pack<N> with_exponent(const Pack<N>& p, const Pack<N>& n, const Pack<N>& x,
                                     float low) {
  return each_part<Pack<N>>([&](int i) { return with_exponent(p.v[i], n.v[i], x.v[i], low); });
}
template <int N>
TRIDENT_INLINE Pack<N> inverse(const Pack<N>& x) {
  return each_part<Pack<N>>([&](int i) { return inverse(x.v[i]); });
}
TRIDENT_INLINE F sum_parts(F x) {
  return x;
}
template <int N>
TRIDENT_INLINE F sum_parts(const Pack<N>& x) {
  F sum = x.v[0];
#pragma GCC unroll 8
  for (int i = 1; i < N; ++i) sum += x.v[i];
  return sum;
}

// exp(x) of a vector or a pack, with a relative error below 2e-7. The result is 0 below -86.6,
// infinity above 88.7, and NaN for NaN. Cody & Waite's reduction and the polynomial of Cephes
// (Moshier).
template <class V>
TRIDENT_INLINE V exp(const V& x) {
  constexpr float low = -86.6f;
  // min and max return x if x is NaN. 2^128 · p is infinite above 88.72283.
  const V t = max(splat(low), min(splat(88.8f), x));
  const V n = rounded(t * splat(1.44269504088896341f));
  V r = fma(n, splat(-0.693359375f), t);
  r = fma(n, splat(2.12194440e-4f), r);
  V p = fma(r, splat(1.9875691500e-4f), splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  return with_exponent(p, n, x, low);
}

// The lanes of a vector that are in memory: all, or the first n.
struct All {};
struct Some {
  std::int64_t n;
};
template <int N>
struct Whole {};  // all lanes of N vectors
template <int N, class T>
TRIDENT_INLINE Pack<N> load(const T* p, Whole<N>) {
  return each_part<Pack<N>>([&](int i) { return load(p + i * W); });
}
template <int N, class T>
TRIDENT_INLINE void store(T* p, const Pack<N>& x, Whole<N>) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) store(p + i * W, x.v[i]);
}
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

// x in the lanes that are in memory, `rest` in the others.
TRIDENT_INLINE F only(F x, All, F = F{}) {
  return x;
}
TRIDENT_INLINE F only(F x, Some some, F rest = F{}) {
  return first_n(x, rest, some.n);
}

template <int N>
TRIDENT_INLINE Pack<N> only(const Pack<N>& x, Whole<N>, F = F{}) {
  return x;
}

// Calls step(i, lanes) for N vectors of [0, n) at a time, then for each vector of the remainder.
template <int N, class Step>
TRIDENT_INLINE void each_pack(std::int64_t n, Step step) {
  std::int64_t i = 0;
  for (; i + N * W <= n; i += N * W) step(i, Whole<N>{});
  for (; i + W <= n; i += W) step(i, All{});
  if (i < n) step(i, Some{n - i});
}
// Calls step(i, lanes) for each vector of [0, n).
template <class Step>
TRIDENT_INLINE void each(std::int64_t n, Step step) {
  std::int64_t i = 0;
  for (; i + W <= n; i += W) step(i, All{});
  if (i < n) step(i, Some{n - i});
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
