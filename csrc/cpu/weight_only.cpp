// weight-only quantization: int8 weights with a scale per column, activations as they are.
//
// A single row reads every weight once, so a product takes as long as its bytes: a quarter of those of f32.
// Bytes are widened to floats in registers, and the scale of a column is applied once, to its finished sum.
// With many rows the multiplications decide and widening is extra work, so a panel is widened once for all of
// them. Nothing is found out about the activations: no absmax, no rounding.
#include "gemm_float.h"
#include "gemm_i8.h"
#include "rowwise.h"

namespace flashperf {
namespace {

using gemm::vf;
using gemm::W;

inline vf load_wide(const int8_t* p) {
#if defined(__AVX512F__)
  return vf(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))));
#elif defined(__AVX2__)
  return vf(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
#else
  vf x;
  for (int i = 0; i < W; ++i) x[i] = p[i];
  return x;
#endif
}

// Left operand f32, right operand int8 with one k per step.
struct FmaBytes {
  using A = float;
  using B = int8_t;
  using Acc = float;
  using V = vf;
  static constexpr int kDepth = 1, kRows = gemm::kMaxRows;
  static V load(const B* b) { return load_wide(b); }
  static V spread(const A* a) { return simd::splat(*a); }
  static V multiply_add(V acc, V a, V b) { return acc + a * b; }
};

template <class T>
struct StoreScaled {
  static constexpr bool kGated = false;
  const float* scale;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vf lo, vf hi) const {
    const int64_t left = n - col;
    T* out = y + row * n + col;
    gemm::store_some(out, lo * gemm::load_some(scale + col, left), left);
    if (left > W) gemm::store_some(out + W, hi * gemm::load_some(scale + col + W, left - W), left - W);
  }
};

template <class T>
struct StoreSwigluScaled {
  static constexpr bool kGated = true;
  const float* gate_scale;
  const float* up_scale;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vf gate, vf up) const {
    const int64_t left = n - col;
    const vf g = gate * gemm::load_some(gate_scale + col, left);
    const vf u = up * gemm::load_some(up_scale + col, left);
    gemm::store_some(y + row * n + col, simd::silu(g) * u, left);
  }
};

void pack_w8(const int8_t* w, int8_t* packed, int64_t k, int64_t n) {
  for (int64_t p = 0; p < gemm::ceil_div(n, gemm::kPanel); ++p) {
    for (int64_t row = 0; row < k; ++row, packed += gemm::kPanel) {
      const int64_t cols = std::min(gemm::kPanel, n - p * gemm::kPanel);
      std::fill(std::copy_n(w + row * n + p * gemm::kPanel, cols, packed), packed + gemm::kPanel, 0);
    }
  }
}

gemm::Source<int8_t> bytes_source(const int8_t* packed, int64_t k, int64_t n) {
  return {packed, k, n, gemm::ceil_div(n, gemm::kPanel), k * gemm::kPanel, gemm::kPanel};
}

gemm::Source<float> widened_bytes(const int8_t* packed, int64_t k, int64_t n) {
  const auto make = [](const void* panels, int64_t depth, int64_t, int64_t p, int64_t count, float* out) {
    const int8_t* from = static_cast<const int8_t*>(panels) + p * depth * gemm::kPanel;
    for (int64_t i = 0; i < count * depth * gemm::kPanel; i += W) simd::store(out + i, load_wide(from + i));
  };
  const int64_t elements = k * gemm::kPanel;
  const int64_t together = gemm::panels_at_once<float>(n, elements);
  return {packed, k, n, 0, 0, 0, make, elements, gemm::kPanel, together};
}

template <class T, class E>
void product(const T* x, int64_t m, int64_t k, int64_t n, const int8_t* w, const int8_t* w2,
             const E& epilogue) {
  const float* a = gemm::as_float(x, m, k, k);
  if (m <= gemm::kMaxRows)
    gemm::multiply<FmaBytes>(a, k, m, k, n, bytes_source(w, k, n), bytes_source(w2, k, n), epilogue);
  else
    gemm::multiply<gemm::Fma<float>>(a, k, m, k, n, widened_bytes(w, k, n), widened_bytes(w2, k, n),
                                     epilogue);
}

template <class T>
void gemm_w8_packed(const T* x, const int8_t* packed, const float* scale, T* y, int64_t m, int64_t k,
                    int64_t n) {
  product(x, m, k, n, packed, nullptr, StoreScaled<T>{scale, y, n});
}

template <class T>
void gemm_swiglu_w8_packed(const T* x, const int8_t* gate, const float* gate_scale, const int8_t* up,
                           const float* up_scale, T* y, int64_t m, int64_t k, int64_t n) {
  product(x, m, k, n, gate, up, StoreSwigluScaled<T>{gate_scale, up_scale, y, n});
}

// The whole weight brought back to floats in memory, for products that take nothing else.
template <class T>
void dequantize_weight(const int8_t* q, const float* scale, T* w, int64_t k, int64_t n) {
  for (int64_t row = 0; row < k; ++row, q += n, w += n) {
    int64_t col = 0;
    for (; col + W <= n; col += W) simd::store(w + col, load_wide(q + col) * simd::load(scale + col));
    for (; col < n; ++col) w[col] = simd::from_float<T>(static_cast<float>(q[col]) * scale[col]);
  }
}

FP_KERNEL(pack_w8, "w[k,n] -> packed[n/32,k,32]; k n")
FP_KERNEL_TYPES("gemm_w8_packed", gemm_w8_packed, "x[m,k] packed[n/32,k,32] scale[n] -> y[m,n]; m k n")
FP_KERNEL_TYPES("gemm_swiglu_w8_packed", gemm_swiglu_w8_packed,
                "x[m,k] gate[n/32,k,32] gate_scale[n] up[n/32,k,32] up_scale[n] -> y[m,n]; m k n")
FP_KERNEL_TYPES("dequantize_weight", dequantize_weight, "q[k,n] scale[n] -> w[k,n]; k n")

}  // namespace
}  // namespace flashperf
