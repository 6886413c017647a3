// precision: the same product in f32, bf16 and f16, and the casts between them.
//
// A narrower type halves the bytes of weights and activations, and bf16 has dot-product instructions (and
// tiles) that do two to sixteen times as many multiplications. Casting operands in memory around every
// product, as an autocast without a cache does, reads and writes them once more and gives most of that back.
#include "gemm_float.h"

namespace flashperf {
namespace {

template <class From, class To>
void cast(const From* x, To* y, int64_t n) {
  using simd::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) simd::store(y + i, simd::load(x + i));
  for (; i < n; ++i) y[i] = simd::from_float<To>(simd::to_float(x[i]));
}

template <class T>
void gemm_packed(const T* x, const T* packed, T* y, int64_t m, int64_t k, int64_t n) {
  gemm::product_packed<T>(x, m, k, n, packed, nullptr, gemm::Store<T>{y, n});
}

}  // namespace

FP_KERNEL_AS("cast_f32_bf16", (cast<float, bf16>), "x[n] -> y[n]; n")
FP_KERNEL_AS("cast_bf16_f32", (cast<bf16, float>), "x[n] -> y[n]; n")
FP_KERNEL_AS("cast_f32_f16", (cast<float, f16>), "x[n] -> y[n]; n")
FP_KERNEL_AS("cast_f16_f32", (cast<f16, float>), "x[n] -> y[n]; n")

FP_KERNEL_AS("pack_f32", gemm::pack<float>, "w[k,n] -> packed[n/32,k,32]; k n")
FP_KERNEL_AS("pack_f16", gemm::pack<f16>, "w[k,n] -> packed[n/32,k,32]; k n")
FP_KERNEL_AS("pack_bf16", gemm::pack<bf16>, "w[k,n] -> packed[n/32,k/2,64]; k n")

FP_KERNEL_AS("gemm_f32_packed", gemm_packed<float>, "x[m,k] packed[n/32,k,32] -> y[m,n]; m k n")
FP_KERNEL_AS("gemm_f16_packed", gemm_packed<f16>, "x[m,k] packed[n/32,k,32] -> y[m,n]; m k n")
FP_KERNEL_AS("gemm_bf16_packed", gemm_packed<bf16>, "x[m,k] packed[n/32,k/2,64] -> y[m,n]; m k n")

}  // namespace flashperf
