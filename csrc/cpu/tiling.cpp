#include "gemm_v0.h"

namespace flashperf {
namespace {
template <class T>
void blocked(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  std::vector<float> t(n);
  for (int64_t i = 0; i < m; ++i) {
    std::fill(t.begin(), t.end(), 0.0f);
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) t[j] += simd::to_float(x[i * k + p]) * simd::to_float(w[p * n + j]);
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = simd::from_float<T>(t[j]);
  }
}
template <class T>
void naive(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float s = 0;
      for (int64_t p = 0; p < k; ++p) s += simd::to_float(x[i * k + p]) * simd::to_float(w[p * n + j]);
      y[i * n + j] = simd::from_float<T>(s);
    }
}
void naive_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int32_t s = 0;
      for (int64_t p = 0; p < k; ++p) s += q[i * k + p] * w[p * n + j];
      acc[i * n + j] = s;
    }
}
}  // namespace
#define FP_GEMM(T, name)                                                                  \
  FP_KERNEL_AS("gemm_" name "_blocked", blocked<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")     \
  FP_KERNEL_AS("gemm_" name "_bad_tile", blocked<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")    \
  FP_KERNEL_AS("gemm_" name "_naive", naive<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")
FP_GEMM(float, "f32")
FP_GEMM(bf16, "bf16")
FP_GEMM(f16, "f16")
FP_KERNEL_AS("gemm_i8_naive", naive_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")
FP_KERNEL_AS("gemm_i8_bad_tile", naive_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")
}  // namespace flashperf
