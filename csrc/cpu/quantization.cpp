#include "gemm_v0.h"

namespace flashperf {
namespace {
void pack_i8(const int8_t* w, int8_t* packed, int32_t* sums, int64_t k, int64_t n) {
  gemm::pack<int8_t>(w, packed, k, n);
  std::fill(sums, sums + n, 0);
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = 0; j < n; ++j) sums[j] += w[p * n + j];
}
void gemm_i8(const int8_t* q, const int8_t* packed, const int32_t*, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) gemm::row_i8(q + i * k, packed, acc + i * n, k, n);
}
template <class T>
void quantize_rows(const T* x, int8_t* q, float* scale, int64_t m, int64_t k) {
  for (int64_t i = 0; i < m; ++i) scale[i] = gemm::quantize_row(x + i * k, q + i * k, k);
}
template <class T>
void quantize_static(const T* x, int8_t* q, int64_t m, int64_t k, float scale) {
  for (int64_t i = 0; i < m * k; ++i) {
    const float v = std::nearbyint(simd::to_float(x[i]) / scale);
    q[i] = static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, v)));
  }
}
template <class T>
void dequantize(const int32_t* acc, const float* xs, const float* ws, T* y, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      y[i * n + j] = simd::from_float<T>(static_cast<float>(acc[i * n + j]) * (xs[i] * ws[j]));
}
template <class T>
void fused(const int8_t* q, const int8_t* packed, const int32_t*, const float* xs, const float* ws, T* y, int64_t m,
           int64_t k, int64_t n) {
  std::vector<int32_t> t(n);
  for (int64_t i = 0; i < m; ++i) {
    gemm::row_i8(q + i * k, packed, t.data(), k, n);
    dequantize(t.data(), xs + i, ws, y + i * n, 1, n);
  }
}
}  // namespace
FP_KERNEL(pack_i8, "w[k,n] -> packed[n/32,k/4,128] column_sums[n]; k n")
FP_KERNEL_AS("gemm_i8_packed", gemm_i8, "q[m,k] packed[n/32,k/4,128] column_sums[n] -> acc[m,n]; m k n")
#define FP_QUANT(T, name)                                                                                   \
  FP_KERNEL_AS("quantize_rows_" name, quantize_rows<T>, "x[m,k] -> q[m,k] scale[m]; m k")                   \
  FP_KERNEL_AS("quantize_rows_static_" name, quantize_static<T>, "x[m,k] -> q[m,k]; m k scale")             \
  FP_KERNEL_AS("dequantize_" name, dequantize<T>, "acc[m,n] x_scale[m] w_scale[n] -> y[m,n]; m n")          \
  FP_KERNEL_AS("gemm_i8_packed_dequant_" name, fused<T>,                                                    \
               "q[m,k] packed[n/32,k/4,128] column_sums[n] x_scale[m] w_scale[n] -> y[m,n]; m k n")
FP_QUANT(float, "f32")
FP_QUANT(bf16, "bf16")
FP_QUANT(f16, "f16")
}  // namespace flashperf
