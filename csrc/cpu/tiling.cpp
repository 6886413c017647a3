// tiling: the same product in blocks fitted to the machine, in an untuned tile, and in no block at all.
#include <algorithm>

#include "bad_tile.h"
#include "gemm_float.h"

namespace flashperf {
namespace {

template <class T>
void naive(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += simd::to_float(x[i * k + p]) * simd::to_float(w[p * n + j]);
      y[i * n + j] = simd::from_float<T>(sum);
    }
  }
}

void naive_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += q[i * k + p] * w[p * n + j];
      acc[i * n + j] = sum;
    }
  }
}

template <class T>
void blocked(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  gemm::product_rows<T>(x, m, k, n, w, nullptr, gemm::Store<T>{y, n});
}

template <class T>
void bad(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  bad_tile::product<T, float, T>(x, w, y, m, k, n);
}

void bad_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  bad_tile::product<int8_t, int32_t, int32_t>(q, w, acc, m, k, n);
}

}  // namespace

#define FP_TILING(T, name)                                                         \
  FP_KERNEL_AS("gemm_" name "_naive", naive<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")  \
  FP_KERNEL_AS("gemm_" name "_bad_tile", bad<T>, "x[m,k] w[k,n] -> y[m,n]; m k n") \
  FP_KERNEL_AS("gemm_" name "_blocked", blocked<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")
FP_TILING(float, "f32")
FP_TILING(bf16, "bf16")
FP_TILING(f16, "f16")
FP_KERNEL_AS("gemm_i8_naive", naive_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")
FP_KERNEL_AS("gemm_i8_bad_tile", bad_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")

}  // namespace flashperf
