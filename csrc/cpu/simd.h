// One vector of floats at the width of the instruction set, with loads and stores that convert.
//
// GCC's and Clang's vector extensions give arithmetic on every target; the few operations that they lack
// (conversions from half types) use intrinsics where the target has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernel.h"
#if defined(__SSE2__)
#pragma GCC diagnostic push  // GCC 12 warns of its own _mm512_undefined_ps (its bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace flashperf::simd {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float vf __attribute__((vector_size(kWidth * 4), aligned(4)));
typedef int32_t vi __attribute__((vector_size(kWidth * 4), aligned(4)));
typedef uint32_t vu __attribute__((vector_size(kWidth * 4), aligned(4)));
typedef uint16_t vh __attribute__((vector_size(kWidth * 2), aligned(2)));

inline vf splat(float x) { return x - vf{}; }  // x + 0 would be an addition: it makes +0 of -0

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
inline float to_float(f16 x) {
#if defined(__F16C__)
  return _cvtsh_ss(x.bits);
#else
  _Float16 h;
  std::memcpy(&h, &x.bits, 2);
  return static_cast<float>(h);
#endif
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {  // round to nearest even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
#if defined(__F16C__)
  return {static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))};
#else
  const _Float16 h = static_cast<_Float16>(x);
  f16 y;
  std::memcpy(&y.bits, &h, 2);
  return y;
#endif
}

// Vectors are read through a pointer, not by memcpy: GCC 12 copies 32 bytes in two halves by way of the
// stack, and the load of the whole then waits for both stores. A vector may alias its elements.
inline vf load(const float* p) { return *reinterpret_cast<const vf*>(p); }
inline vf load(const bf16* p) {  // intrinsics: GCC's own conversion splits the vector and joins it again
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return vf(_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
#elif defined(__AVX2__)
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return vf(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
#else
  const vh h = *reinterpret_cast<const vh*>(p);
  return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
inline vf load(const f16* p) {
#if defined(__AVX512F__)
  return vf(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return vf(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  vf x;
  for (int i = 0; i < kWidth; ++i) x[i] = to_float(p[i]);
  return x;
#endif
}

inline void store(float* p, vf x) { *reinterpret_cast<vf*>(p) = x; }
inline void store(bf16* p, vf x) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
  const vu bits = (vu)x;
  const vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const vu chosen = (x == x ? rounded : bits | 0x400000u) >> 16;  // NaN stays NaN
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)chosen));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32((__m256i)chosen, (__m256i)chosen);  // within each half
  const __m256i joined = _mm256_permute4x64_epi64(packed, 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(joined));
#else
  *reinterpret_cast<vh*>(p) = __builtin_convertvector(chosen, vh);
#endif
#endif
}
inline void store(f16* p, vf x) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kWidth; ++i) p[i] = from_float<f16>(x[i]);
#endif
}

// What a store to T and a load from it make of x.
template <class T>
inline vf rounded_to(vf x) {
  if constexpr (std::is_same_v<T, float>) return x;
  T buffer[kWidth];
  store(buffer, x);
  return load(buffer);
}

// A tail of n < kWidth elements; the other lanes are `fill`. Nothing beyond the tail is read or written, so
// an array may end at the last byte of a page: masked loads where the hardware has them, a small buffer
// elsewhere.
template <class T>
inline vf load_part(const T* p, int64_t n, float fill = 0.0f) {
#if defined(__AVX512F__)
  const __mmask16 lanes = static_cast<__mmask16>((1u << n) - 1);
  const __m512 rest = _mm512_set1_ps(fill);
  if constexpr (std::is_same_v<T, float>) return vf(_mm512_mask_loadu_ps(rest, lanes, p));
  else if constexpr (std::is_same_v<T, f16>)
    return vf(_mm512_mask_cvtph_ps(rest, lanes, _mm256_maskz_loadu_epi16(lanes, p)));
  else {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p));
    return vf(_mm512_mask_mov_ps(rest, lanes, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))));
  }
#else
  T buffer[kWidth];
  for (int i = 0; i < kWidth; ++i) buffer[i] = from_float<T>(fill);
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return load(buffer);
#endif
}

template <class T>
inline void store_part(T* p, vf x, int64_t n) {
#if defined(__AVX512F__)
  const __mmask16 lanes = static_cast<__mmask16>((1u << n) - 1);
  if constexpr (std::is_same_v<T, float>) {
    _mm512_mask_storeu_ps(p, lanes, (__m512)x);
  } else {
    __m256i halves;
    store(reinterpret_cast<T*>(&halves), x);
    _mm256_mask_storeu_epi16(p, lanes, halves);
  }
#else
  T buffer[kWidth];
  store(buffer, x);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(T));
#endif
}

// max(a, b) as the instruction defines it: b where either is NaN.
inline vf maximum(vf a, vf b) {
#if defined(__AVX512F__)
  return vf(_mm512_max_ps((__m512)a, (__m512)b));
#elif defined(__AVX2__)
  return vf(_mm256_max_ps((__m256)a, (__m256)b));
#else
  return a > b ? a : b;
#endif
}
inline vf minimum(vf a, vf b) {  // b where either is NaN
#if defined(__AVX512F__)
  return vf(_mm512_min_ps((__m512)a, (__m512)b));
#elif defined(__AVX2__)
  return vf(_mm256_min_ps((__m256)a, (__m256)b));
#else
  return a < b ? a : b;
#endif
}

// Across the lanes: halves are folded onto each other, log2(kWidth) steps instead of kWidth dependent ones.
template <class Op>
inline float fold(vf x, Op op) {
  float lanes[kWidth];
  std::memcpy(lanes, &x, sizeof x);
  for (int width = kWidth / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = op(lanes[i], lanes[i + width]);
  return lanes[0];
}
inline float sum(vf x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x);
#else
  return fold(x, [](float a, float b) { return a + b; });
#endif
}
inline float largest(vf x) {  // NaN only if NaN comes last in every step: callers test for NaN themselves
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x);
#else
  return fold(x, [](float a, float b) { return a > b ? a : b; });
#endif
}

}  // namespace flashperf::simd

// Publishes the three instances of a kernel template whose arrays may be f32, bf16 or f16.
#define FP_KERNEL_TYPES(stem, function, signature)                   \
  FP_KERNEL_AS(stem "_f32", function<float>, signature)              \
  FP_KERNEL_AS(stem "_bf16", function<::flashperf::bf16>, signature) \
  FP_KERNEL_AS(stem "_f16", function<::flashperf::f16>, signature)
