// Fusion: each operator as one kernel that reads its operands once and writes its result once. The same
// operators as the passes that an eager framework launches are in fusion_passes.cpp.
#include "rowwise.h"

namespace flashperf {
namespace {
using namespace simd;

// y = x / sqrt(mean(x^2) + eps) * weight. The second read of the row comes from the L1 cache.
template <class T>
void normalise_row(const T* x, const T* weight, T* y, int64_t cols, float squares, float eps) {
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
  map(cols, y, [scale](vf v, vf w) { return v * scale * w; }, x, weight);
}

template <class T>
void rmsnorm(const T* x, const T* weight, T* y, int64_t rows, int64_t cols, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols)
    normalise_row(x, weight, y, cols, sum_of(cols, x, [](vf v) { return v * v; }), eps);
}

// total = x + delta, rounded to T (it may be x itself); returns the sum of squares of what was stored.
template <class T>
float add_and_square(const T* x, const T* delta, T* total, int64_t cols) {
  vf partial[kUnroll] = {};
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= cols; i += kUnroll * kWidth) {
    for (int u = 0; u < kUnroll; ++u) {
      const vf v = load(x + i + u * kWidth) + load(delta + i + u * kWidth);
      store(total + i + u * kWidth, v);
      const vf stored = rounded_to<T>(v);
      partial[u] += stored * stored;
    }
  }
  for (; i < cols; i += kWidth) {
    const int64_t n = cols - i < kWidth ? cols - i : kWidth;
    const vf v = load_part(x + i, n) + load_part(delta + i, n);
    store_part(total + i, v, n);
    const vf stored = rounded_to<T>(v);
    partial[0] += stored * stored;
  }
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

template <class T>
void residual_rmsnorm(T* x, const T* delta, const T* weight, T* y, int64_t rows, int64_t cols, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += cols, delta += cols, y += cols)
    normalise_row(x, weight, y, cols, add_and_square(x, delta, x, cols), eps);
}

// The same with the sum in an array of its own.
template <class T>
void add_rmsnorm(const T* x, const T* delta, const T* weight, T* total, T* y, int64_t rows, int64_t cols,
                 float eps) {
  for (int64_t r = 0; r < rows; ++r, x += cols, delta += cols, total += cols, y += cols)
    normalise_row(total, weight, y, cols, add_and_square(x, delta, total, cols), eps);
}

template <class T>
void swiglu(const T* gate, const T* up, T* y, int64_t n) {
  map(n, y, [](vf g, vf u) { return silu(g) * u; }, gate, up);
}

template <class T>
void bias_gelu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols)
    map(cols, y, [](vf v, vf b) { return gelu(v + b); }, x, bias);
}

// A row that is -inf throughout gives NaN, as in torch. For half types exp is computed twice: rounding it to
// T before the division would double the error, and the second exp costs less than a scratch row.
template <class T>
void softmax(const T* x, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const float peak = largest_of(cols, x);
    if constexpr (std::is_same_v<T, float>) {
      const float scale = 1.0f / exponentials(x, y, cols, peak);
      map(cols, y, [scale](vf v) { return v * scale; }, y);
    } else {
      const float total = sum_of(cols, x, [peak](vf v) { return exp(v - peak); }, -INFINITY);
      const float scale = 1.0f / total;
      map(cols, y, [peak, scale](vf v) { return exp(v - peak) * scale; }, x);
    }
  }
}

FP_KERNEL_TYPES("rmsnorm", rmsnorm, "x[r,c] weight[c] -> y[r,c]; r c eps")
FP_KERNEL_TYPES("residual_rmsnorm", residual_rmsnorm, "~x[r,c] delta[r,c] weight[c] -> y[r,c]; r c eps")
FP_KERNEL_TYPES("add_rmsnorm", add_rmsnorm, "x[r,c] delta[r,c] weight[c] -> total[r,c] y[r,c]; r c eps")
FP_KERNEL_TYPES("swiglu", swiglu, "gate[n] up[n] -> y[n]; n")
FP_KERNEL_TYPES("bias_gelu", bias_gelu, "x[r,c] bias[c] -> y[r,c]; r c")
FP_KERNEL_TYPES("softmax", softmax, "x[r,c] -> y[r,c]; r c")

}  // namespace
}  // namespace flashperf
