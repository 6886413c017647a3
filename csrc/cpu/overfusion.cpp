#include "gemm_v0.h"

namespace flashperf {
namespace {
template <class T>
void swiglu_packed(const T* x, const T* gate, const T* up, T* y, int64_t m, int64_t k, int64_t n) {
  std::vector<float> g(n), u(n);
  for (int64_t i = 0; i < m; ++i) {
    gemm::row(x + i * k, gate, g.data(), k, n);
    gemm::row(x + i * k, up, u.data(), k, n);
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = simd::from_float<T>(gemm::silu(g[j]) * u[j]);
  }
}
template <class T>
void swiglu_blocked(const T* x, const T* gate, const T* up, T* y, int64_t m, int64_t k, int64_t n) {
  constexpr int64_t c = gemm::kGroup<T>;
  std::vector<T> g((n + 31) / 32 * 32 * ((k + c - 1) / c * c)), u(g.size());
  gemm::pack(gate, g.data(), k, n);
  gemm::pack(up, u.data(), k, n);
  swiglu_packed(x, g.data(), u.data(), y, m, k, n);
}
template <class T>
void swiglu_i8(const int8_t* q, const int8_t* gate, const int32_t*, const int8_t* up, const int32_t*, const float* xs,
               const float* gs, const float* us, T* y, int64_t m, int64_t k, int64_t n) {
  std::vector<int32_t> g(n), u(n);
  for (int64_t i = 0; i < m; ++i) {
    gemm::row_i8(q + i * k, gate, g.data(), k, n);
    gemm::row_i8(q + i * k, up, u.data(), k, n);
    for (int64_t j = 0; j < n; ++j)
      y[i * n + j] = simd::from_float<T>(gemm::silu(g[j] * (xs[i] * gs[j])) * (u[j] * (xs[i] * us[j])));
  }
}
template <class T>
void mlp_over(const T* x, const T* gate, const T* up, const T* down, T* y, int64_t m, int64_t d, int64_t f) {
  std::vector<T> h(f);
  std::vector<float> t(d);
  for (int64_t i = 0; i < m; ++i) {
    swiglu_packed(x + i * d, gate, up, h.data(), 1, d, f);
    gemm::row(h.data(), down, t.data(), f, d);
    for (int64_t j = 0; j < d; ++j) y[i * d + j] = simd::from_float<T>(t[j]);
  }
}
template <class T>
void mlp_over_i8(const T* x, const int8_t* gate, const int32_t* gate_sums, const float* gs, const int8_t* up,
                 const int32_t* up_sums, const float* us, const int8_t* down, const int32_t*, const float* ds, T* y,
                 int64_t m, int64_t d, int64_t f) {
  std::vector<int8_t> q(d), hq(f);
  std::vector<float> h(f);
  std::vector<int32_t> t(d);
  for (int64_t i = 0; i < m; ++i) {
    const float xs = gemm::quantize_row(x + i * d, q.data(), d);
    swiglu_i8<float>(q.data(), gate, gate_sums, up, up_sums, &xs, gs, us, h.data(), 1, d, f);
    const float hs = gemm::quantize_row(h.data(), hq.data(), f);
    gemm::row_i8(hq.data(), down, t.data(), f, d);
    for (int64_t j = 0; j < d; ++j) y[i * d + j] = simd::from_float<T>(t[j] * (hs * ds[j]));
  }
}
}  // namespace
#define FP_SWIGLU(T, name, k, d, f, c)                                                                               \
  FP_KERNEL_AS("gemm_swiglu_" name "_packed", swiglu_packed<T>,                                                      \
               "x[m,k] gate[n/32," k "," c "] up[n/32," k "," c "] -> y[m,n]; m k n")                                \
  FP_KERNEL_AS("gemm_swiglu_" name "_blocked", swiglu_blocked<T>, "x[m,k] gate[k,n] up[k,n] -> y[m,n]; m k n")       \
  FP_KERNEL_AS("gemm_swiglu_i8_packed_" name, swiglu_i8<T>,                                                          \
               "q[m,k] gate[n/32,k/4,128] gate_sums[n] up[n/32,k/4,128] up_sums[n] x_scale[m] gate_scale[n] "        \
               "up_scale[n] -> y[m,n]; m k n")                                                                       \
  FP_KERNEL_AS("mlp_over_" name, mlp_over<T>,                                                                        \
               "x[m,d] gate[f/32," d "," c "] up[f/32," d "," c "] down[d/32," f "," c "] -> y[m,d]; m d f")         \
  FP_KERNEL_AS("mlp_over_i8_" name, mlp_over_i8<T>,                                                                  \
               "x[m,d] gate[f/32,d/4,128] gate_sums[f] gate_scale[f] up[f/32,d/4,128] up_sums[f] up_scale[f] "       \
               "down[d/32,f/4,128] down_sums[d] down_scale[d] -> y[m,d]; m d f")
FP_SWIGLU(float, "f32", "k", "d", "f", "32")
FP_SWIGLU(f16, "f16", "k", "d", "f", "32")
FP_SWIGLU(bf16, "bf16", "k/2", "d/2", "f/2", "64")
}  // namespace flashperf
