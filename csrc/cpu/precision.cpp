#include "gemm_v0.h"

namespace flashperf {
namespace {
template <class A, class B>
void cast(const A* x, B* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = simd::from_float<B>(simd::to_float(x[i]));
}
template <class T>
void gemm_packed(const T* x, const T* packed, T* y, int64_t m, int64_t k, int64_t n) {
  std::vector<float> t(n);
  for (int64_t i = 0; i < m; ++i) {
    gemm::row(x + i * k, packed, t.data(), k, n);
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = simd::from_float<T>(t[j]);
  }
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
