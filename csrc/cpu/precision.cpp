// precision: the same product in f32, bf16 and f16, and the casts between them.
//
// A half type halves the bytes of weights and activations. What it does for the multiplications depends on
// the CPU: AMX tiles do sixteen times as many in bf16 as vector instructions do in f32, elsewhere both types
// are widened to f32 first. Casting operands in memory around every product, as an autocast without a cache
// of weights does, reads and writes them once more and gives most of that back.
#include "gemm_float.h"
#include "rowwise.h"

namespace flashperf {
namespace {

template <class From, class To>
void cast(const From* x, To* y, int64_t n) {
  simd::map(n, y, [](simd::vf value) { return value; }, x);
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
