// Quantisation of rows: symmetric int8, one scale per row (per token), rounded to the nearest, ties to even.
#pragma once

#include "gemm_i8.h"

namespace flashperf::gemm {

// Rounds the first min(n, W) lanes of x, all in [-127, 127], to int8.
inline void store_rounded(int8_t* q, vf x, int64_t n) {
#if defined(__AVX512F__)
  const __mmask16 lanes = n >= W ? 0xffff : static_cast<__mmask16>((1u << n) - 1);
  _mm512_mask_cvtsepi32_storeu_epi8(q, lanes, _mm512_cvtps_epi32((__m512)x));
#else
  int8_t bytes[W];
#if defined(__AVX2__)
  const __m256i ints = _mm256_cvtps_epi32((__m256)x);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256(ints, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes), _mm_packs_epi16(words, words));
#else
  for (int i = 0; i < W; ++i) bytes[i] = static_cast<int8_t>(std::lrintf(x[i]));
#endif
  std::memcpy(q, bytes, static_cast<size_t>(std::min<int64_t>(n, W)));
#endif
}

template <class T>
inline vf load_row(const T* x, int64_t left) {
  return left >= W ? simd::load(x) : simd::load_part(x, left);
}

template <class T>
float largest_magnitude(const T* x, int64_t k) {
  vf top[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= k; i += 4 * W)
    for (int u = 0; u < 4; ++u) top[u] = simd::maximum(top[u], simd::magnitude(simd::load(x + i + u * W)));
  for (; i < k; i += W) top[0] = simd::maximum(top[0], simd::magnitude(load_row(x + i, k - i)));
  return simd::fold(simd::maximum(simd::maximum(top[0], top[1]), simd::maximum(top[2], top[3])),
                    [](float a, float b) { return a > b ? a : b; });
}

// q = x * inverse, clamped: only a static scale can put a value out of range.
template <class T>
void quantize_with(const T* x, int8_t* q, int64_t k, float inverse) {
  const vf top = simd::splat(127.0f);
  for (int64_t i = 0; i < k; i += W)
    store_rounded(q + i, simd::minimum(top, simd::maximum(-top, load_row(x + i, k - i) * inverse)), k - i);
}

// Quantises a row by its own largest magnitude and returns the scale, so that x is about q * scale. A row of
// zeros has scale 0 and quantises to zeros, and so does one too small (below 2^-120) for 127 / magnitude to
// be a float.
template <class T>
float quantize_row(const T* x, int8_t* q, int64_t k) {
  const float top = largest_magnitude(x, k);
  const bool zero = top < 0x1p-120f;
  quantize_with(x, q, k, zero ? 0.0f : 127.0f / top);
  return zero ? 0.0f : top / 127.0f;
}

}  // namespace flashperf::gemm
