// quantization: int8 products with a scale per row of activations (per token) and per column of weights.
//
// The int8 product itself is two to four times as fast as f32. Around it stand the parts that a claim of
// "INT8 is faster" leaves out: a pass over the activations for the largest magnitude of each row, a pass that
// rounds them, and a pass that turns the int32 sums back into floats. The last can be fused into the product,
// the first two cannot when the scale is dynamic; a static scale, found beforehand, saves the first.
#include "quantize.h"

namespace flashperf {
namespace {

using gemm::W;

void pack_i8(const int8_t* w, int8_t* packed, int32_t* column_sums, int64_t k, int64_t n) {
  gemm::pack(w, packed, k, n);
  gemm::sum_columns(w, k, n, column_sums);
}

template <class T>
void quantize_rows(const T* x, int8_t* q, float* scale, int64_t m, int64_t k) {
  for (int64_t row = 0; row < m; ++row) scale[row] = gemm::quantize_row(x + row * k, q + row * k, k);
}

template <class T>
void quantize_rows_static(const T* x, int8_t* q, int64_t m, int64_t k, float scale) {
  gemm::quantize_with(x, q, m * k, 1.0f / scale);
}

void gemm_i8_packed(const int8_t* q, const int8_t* packed, const int32_t* column_sums, int32_t* acc,
                    int64_t m, int64_t k, int64_t n) {
  gemm::product_i8(q, m, k, n, {packed, column_sums}, {}, gemm::StoreInt{acc, n});
}

template <class T>
void dequantize(const int32_t* acc, const float* x_scale, const float* w_scale, T* y, int64_t m, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t col = 0; col < n; col += W) {
      const int64_t at = row * n + col, left = n - col;
      const auto sums = gemm::load_some(acc + at, left);
      gemm::store_some(y + at, gemm::dequantized(sums, x_scale[row], w_scale + col, left), left);
    }
  }
}

template <class T>
void gemm_i8_packed_dequant(const int8_t* q, const int8_t* packed, const int32_t* column_sums,
                            const float* x_scale, const float* w_scale, T* y, int64_t m, int64_t k,
                            int64_t n) {
  gemm::product_i8(q, m, k, n, {packed, column_sums}, {}, gemm::StoreDequantized<T>{x_scale, w_scale, y, n});
}

}  // namespace

FP_KERNEL(pack_i8, "w[k,n] -> packed[n/32,k/4,128] column_sums[n]; k n")
FP_KERNEL(gemm_i8_packed, "q[m,k] packed[n/32,k/4,128] column_sums[n] -> acc[m,n]; m k n")

#define FP_QUANTIZATION(T, name)                                                                     \
  FP_KERNEL_AS("quantize_rows_" name, quantize_rows<T>, "x[m,k] -> q[m,k] scale[m]; m k")            \
  FP_KERNEL_AS("quantize_rows_static_" name, quantize_rows_static<T>, "x[m,k] -> q[m,k]; m k scale") \
  FP_KERNEL_AS("dequantize_" name, dequantize<T>, "acc[m,n] x_scale[m] w_scale[n] -> y[m,n]; m n")   \
  FP_KERNEL_AS("gemm_i8_packed_dequant_" name, gemm_i8_packed_dequant<T>,                            \
               "q[m,k] packed[n/32,k/4,128] column_sums[n] x_scale[m] w_scale[n] -> y[m,n]; m k n")
FP_QUANTIZATION(float, "f32")
FP_QUANTIZATION(bf16, "bf16")
FP_QUANTIZATION(f16, "f16")

}  // namespace flashperf
