// Loops over contiguous elements: whole vectors four at a time, whole vectors, then a masked tail.
#pragma once

#include "simd_math.h"

namespace flashperf::simd {

// Vectors in flight per loop step: exp is a chain of ten dependent operations of 4 cycles each, so a core
// with two units stays busy only if several chains overlap; its out-of-order window does the rest.
constexpr int kUnroll = 4;

// y[i] = op(x[i]...), arithmetic in float whatever the storage types are.
template <class Op, class Out, class... In>
inline void map(int64_t n, Out* y, Op op, const In*... x) {
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= n; i += kUnroll * kWidth) {
    vf result[kUnroll];
    for (int u = 0; u < kUnroll; ++u) result[u] = op(load(x + i + u * kWidth)...);
    for (int u = 0; u < kUnroll; ++u) store(y + i + u * kWidth, result[u]);
  }
  for (; i + kWidth <= n; i += kWidth) store(y + i, op(load(x + i)...));
  if (i < n) store_part(y + i, op(load_part(x + i, n - i)...), n - i);
}

// The sum of op(x[i]); op(fill) must be 0, since that is what the lanes beyond the tail hold.
template <class T, class Op>
inline float sum_of(int64_t n, const T* x, Op op, float fill = 0.0f) {
  vf partial[kUnroll] = {};
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= n; i += kUnroll * kWidth)
    for (int u = 0; u < kUnroll; ++u) partial[u] += op(load(x + i + u * kWidth));
  for (; i + kWidth <= n; i += kWidth) partial[0] += op(load(x + i));
  if (i < n) partial[1] += op(load_part(x + i, n - i, fill));
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

// The largest element; one that is NaN is passed over.
template <class T>
inline float largest_of(int64_t n, const T* x) {
  vf partial[kUnroll];
  for (vf& p : partial) p = splat(-INFINITY);
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= n; i += kUnroll * kWidth)
    for (int u = 0; u < kUnroll; ++u) partial[u] = maximum(load(x + i + u * kWidth), partial[u]);
  for (; i + kWidth <= n; i += kWidth) partial[0] = maximum(load(x + i), partial[0]);
  if (i < n) partial[1] = maximum(load_part(x + i, n - i, -INFINITY), partial[1]);
  return largest(maximum(maximum(partial[0], partial[1]), maximum(partial[2], partial[3])));
}

// y = exp(x - peak); returns the sum of y. In place too.
inline float exponentials(const float* x, float* y, int64_t cols, float peak) {
  vf partial[kUnroll] = {};
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= cols; i += kUnroll * kWidth) {
    vf e[kUnroll];
    for (int u = 0; u < kUnroll; ++u) e[u] = exp(load(x + i + u * kWidth) - peak);
    for (int u = 0; u < kUnroll; ++u) {
      store(y + i + u * kWidth, e[u]);
      partial[u] += e[u];
    }
  }
  for (; i < cols; i += kWidth) {
    const int64_t n = cols - i < kWidth ? cols - i : kWidth;
    const vf e = exp(load_part(x + i, n, -INFINITY) - peak);
    store_part(y + i, e, n);
    partial[0] += e;
  }
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

}  // namespace flashperf::simd
