// Simple bodies, to be replaced: layouts and numerics are final.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "simd.h"

namespace flashperf::gemm {
template <class T>
constexpr int64_t kGroup = std::is_same_v<T, bf16> ? 2 : std::is_same_v<T, int8_t> ? 4 : 1;

template <class T>
inline int64_t packed_index(int64_t k, int64_t kk, int64_t j) {
  constexpr int64_t g = kGroup<T>;
  return ((j / 32) * ((k + g - 1) / g) + kk / g) * 32 * g + (j % 32) * g + kk % g;
}
inline float silu(float x) { return x / (1.0f + std::exp(-x)); }

template <class T>
void pack(const T* w, T* packed, int64_t k, int64_t n) {
  constexpr int64_t g = kGroup<T>;
  std::memset(static_cast<void*>(packed), 0, (n + 31) / 32 * ((k + g - 1) / g) * 32 * g * sizeof(T));
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) packed[packed_index<T>(k, i, j)] = w[i * n + j];
}
template <class T>
void row(const T* x, const T* packed, float* y, int64_t k, int64_t n) {
  std::fill(y, y + n, 0.0f);
  for (int64_t p = 0; p < k; ++p) {
    const float a = simd::to_float(x[p]);
    for (int64_t j = 0; j < n; ++j) y[j] += a * simd::to_float(packed[packed_index<T>(k, p, j)]);
  }
}
inline void row_i8(const int8_t* x, const int8_t* packed, int32_t* y, int64_t k, int64_t n) {
  std::fill(y, y + n, 0);
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = 0; j < n; ++j) y[j] += x[p] * packed[packed_index<int8_t>(k, p, j)];
}
template <class T>
float quantize_row(const T* x, int8_t* q, int64_t k) {
  float top = 0;
  for (int64_t i = 0; i < k; ++i) top = std::max(top, std::fabs(simd::to_float(x[i])));
  const float inverse = top > 0 ? 127.0f / top : 0.0f;
  for (int64_t i = 0; i < k; ++i) q[i] = static_cast<int8_t>(std::nearbyint(simd::to_float(x[i]) * inverse));
  return top / 127.0f;
}
}  // namespace flashperf::gemm
