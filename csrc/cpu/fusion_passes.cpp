// Fusion, the other side: the passes that an eager framework launches for the operators in fusion.cpp, each a
// kernel of its own that reads and writes whole arrays.
#include "rowwise.h"

namespace flashperf {
namespace {
using namespace simd;

template <class T>
void accumulate(T* x, const T* delta, int64_t n) {
  map(n, x, [](vf v, vf d) { return v + d; }, x, delta);
}

template <class T>
void add(const T* a, const T* b, T* y, int64_t n) {
  map(n, y, [](vf v, vf w) { return v + w; }, a, b);
}

template <class T>
void square(const T* x, T* y, int64_t n) {
  map(n, y, [](vf v) { return v * v; }, x);
}

template <class T>
void silu_pass(const T* x, T* y, int64_t n) {
  map(n, y, [](vf v) { return silu(v); }, x);
}

template <class T>
void gelu_pass(const T* x, T* y, int64_t n) {
  map(n, y, [](vf v) { return gelu(v); }, x);
}

template <class T>
void exp_pass(const T* x, T* y, int64_t n) {
  map(n, y, [](vf v) { return exp(v); }, x);
}

template <class T>
void multiply(const T* a, const T* b, T* y, int64_t n) {
  map(n, y, [](vf v, vf w) { return v * w; }, a, b);
}

template <class T>
void rsqrt_eps(const T* x, T* y, int64_t rows, float eps) {
  for (int64_t r = 0; r < rows; ++r) y[r] = from_float<T>(1.0f / std::sqrt(to_float(x[r]) + eps));
}

// Reductions: one number per row.
template <class T>
void row_sum(const T* x, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) y[r] = from_float<T>(sum_of(cols, x + r * cols, [](vf v) { return v; }));
}

template <class T>
void row_mean(const T* x, T* y, int64_t rows, int64_t cols) {
  const float n = static_cast<float>(cols);
  for (int64_t r = 0; r < rows; ++r)
    y[r] = from_float<T>(sum_of(cols, x + r * cols, [](vf v) { return v; }) / n);
}

template <class T>
void row_max(const T* x, T* y, int64_t rows, int64_t cols) {  // NaN wherever the row has one, as in torch
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * cols;
    const float nans = sum_of(cols, row, [](vf v) { return v != v ? splat(1.0f) : splat(0.0f); });
    y[r] = from_float<T>(nans > 0 ? NAN : largest_of(cols, row));
  }
}

// Broadcasts: s is one number per row, w one per column.
template <class T>
void scale_rows(const T* x, const T* s, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = to_float(s[r]);
    map(cols, y + r * cols, [scale](vf v) { return v * scale; }, x + r * cols);
  }
}

template <class T>
void subtract_rows(const T* x, const T* s, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float offset = to_float(s[r]);
    map(cols, y + r * cols, [offset](vf v) { return v - offset; }, x + r * cols);
  }
}

template <class T>
void divide_rows(const T* x, const T* s, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float divisor = to_float(s[r]);
    map(cols, y + r * cols, [divisor](vf v) { return v / divisor; }, x + r * cols);
  }
}

template <class T>
void scale_cols(const T* x, const T* w, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    map(cols, y + r * cols, [](vf v, vf c) { return v * c; }, x + r * cols, w);
}

template <class T>
void add_cols(const T* x, const T* w, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    map(cols, y + r * cols, [](vf v, vf c) { return v + c; }, x + r * cols, w);
}

FP_KERNEL_TYPES("accumulate", accumulate, "~x[n] delta[n]; n")
FP_KERNEL_TYPES("add", add, "a[n] b[n] -> y[n]; n")
FP_KERNEL_TYPES("square", square, "x[n] -> y[n]; n")
FP_KERNEL_TYPES("silu", silu_pass, "x[n] -> y[n]; n")
FP_KERNEL_TYPES("gelu", gelu_pass, "x[n] -> y[n]; n")
FP_KERNEL_TYPES("exp", exp_pass, "x[n] -> y[n]; n")
FP_KERNEL_TYPES("multiply", multiply, "a[n] b[n] -> y[n]; n")
FP_KERNEL_TYPES("rsqrt_eps", rsqrt_eps, "x[r] -> y[r]; r eps")
FP_KERNEL_TYPES("row_sum", row_sum, "x[r,c] -> y[r]; r c")
FP_KERNEL_TYPES("row_mean", row_mean, "x[r,c] -> y[r]; r c")
FP_KERNEL_TYPES("row_max", row_max, "x[r,c] -> y[r]; r c")
FP_KERNEL_TYPES("scale_rows", scale_rows, "x[r,c] s[r] -> y[r,c]; r c")
FP_KERNEL_TYPES("subtract_rows", subtract_rows, "x[r,c] s[r] -> y[r,c]; r c")
FP_KERNEL_TYPES("divide_rows", divide_rows, "x[r,c] s[r] -> y[r,c]; r c")
FP_KERNEL_TYPES("scale_cols", scale_cols, "x[r,c] w[c] -> y[r,c]; r c")
FP_KERNEL_TYPES("add_cols", add_cols, "x[r,c] w[c] -> y[r,c]; r c")

}  // namespace
}  // namespace flashperf
