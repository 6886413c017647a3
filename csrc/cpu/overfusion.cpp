// overfusion: a SwiGLU MLP, y = (silu(x @ gate) * (x @ up)) @ down, fused as far as it pays and further.
//
// Fusing the activation into the two products is free: the tile that holds both finishes in registers, and
// three passes over the hidden activations disappear. Fusing the third product too (fully fused MLPs, as
// tiny-cuda-nn has them) keeps the whole hidden row on chip, but it leaves rows as the only axis to go along:
// here every row reads all weights again with a tile of one row, where the separate products use each load
// for up to 14 or 32 rows; on a GPU it is a few fat blocks in place of many. It pays where the weights are
// small and rows are few.
#include "gemm_float.h"
#include "quantize.h"

namespace flashperf {
namespace {

using gemm::Buffer;
using gemm::scratch;

template <class T>
void gemm_swiglu_packed(const T* x, const T* gate, const T* up, T* y, int64_t m, int64_t k, int64_t n) {
  gemm::product_packed<T>(x, m, k, n, gate, up, gemm::StoreSwiglu<T>{y, n});
}

template <class T>
void gemm_swiglu_blocked(const T* x, const T* gate, const T* up, T* y, int64_t m, int64_t k, int64_t n) {
  gemm::product_rows<T>(x, m, k, n, gate, up, gemm::StoreSwiglu<T>{y, n});
}

template <class T>
void gemm_swiglu_i8_packed(const int8_t* q, const int8_t* gate, const int32_t* gate_sums, const int8_t* up,
                           const int32_t* up_sums, const float* x_scale, const float* gate_scale,
                           const float* up_scale, T* y, int64_t m, int64_t k, int64_t n) {
  const gemm::StoreSwigluDequantized<T> epilogue{x_scale, gate_scale, up_scale, y, n};
  gemm::product_i8(q, m, k, n, {gate, gate_sums}, {up, up_sums}, epilogue);
}

template <class T>
void mlp_over(const T* x, const T* gate, const T* up, const T* down, T* y, int64_t m, int64_t d, int64_t f) {
  T* hidden = scratch<Buffer::kHidden, T>(f);
  for (int64_t row = 0; row < m; ++row) {
    gemm::product_packed<T>(x + row * d, 1, d, f, gate, up, gemm::StoreSwiglu<T>{hidden, f});
    gemm::product_packed<T>(hidden, 1, f, d, down, nullptr, gemm::Store<T>{y + row * d, d});
  }
}

template <class T>
void mlp_over_i8(const T* x, const int8_t* gate, const int32_t* gate_sums, const float* gate_scale,
                 const int8_t* up, const int32_t* up_sums, const float* up_scale, const int8_t* down,
                 const int32_t* down_sums, const float* down_scale, T* y, int64_t m, int64_t d, int64_t f) {
  T* hidden = scratch<Buffer::kHidden, T>(f);
  int8_t* q = scratch<Buffer::kRow, int8_t>(std::max(d, f));
  for (int64_t row = 0; row < m; ++row) {
    float scale = gemm::quantize_row(x + row * d, q, d);
    gemm_swiglu_i8_packed(q, gate, gate_sums, up, up_sums, &scale, gate_scale, up_scale, hidden, 1, d, f);
    scale = gemm::quantize_row(hidden, q, f);
    const gemm::StoreDequantized<T> epilogue{&scale, down_scale, y + row * d, d};
    gemm::product_i8(q, 1, f, d, {down, down_sums}, {}, epilogue);
  }
}

}  // namespace

#define FP_OVERFUSION(T, name, k, d, f, width)                                                        \
  FP_KERNEL_AS("gemm_swiglu_" name "_packed", gemm_swiglu_packed<T>,                                  \
               "x[m,k] gate[n/32," k "," width "] up[n/32," k "," width "] -> y[m,n]; m k n")         \
  FP_KERNEL_AS("gemm_swiglu_" name "_blocked", gemm_swiglu_blocked<T>,                                \
               "x[m,k] gate[k,n] up[k,n] -> y[m,n]; m k n")                                           \
  FP_KERNEL_AS(                                                                                       \
      "gemm_swiglu_i8_packed_" name, gemm_swiglu_i8_packed<T>,                                        \
      "q[m,k] gate[n/32,k/4,128] gate_sums[n] up[n/32,k/4,128] up_sums[n] x_scale[m] gate_scale[n] "  \
      "up_scale[n] -> y[m,n]; m k n")                                                                 \
  FP_KERNEL_AS("mlp_over_" name, mlp_over<T>,                                                         \
               "x[m,d] gate[f/32," d "," width "] up[f/32," d "," width "] down[d/32," f "," width    \
               "] -> y[m,d]; "                                                                        \
               "m d f")                                                                               \
  FP_KERNEL_AS(                                                                                       \
      "mlp_over_i8_" name, mlp_over_i8<T>,                                                            \
      "x[m,d] gate[f/32,d/4,128] gate_sums[f] gate_scale[f] up[f/32,d/4,128] up_sums[f] up_scale[f] " \
      "down[d/32,f/4,128] down_sums[d] down_scale[d] -> y[m,d]; m d f")
FP_OVERFUSION(float, "f32", "k", "d", "f", "32")
FP_OVERFUSION(f16, "f16", "k", "d", "f", "32")
FP_OVERFUSION(bf16, "bf16", "k/2", "d/2", "f/2", "64")

}  // namespace flashperf
