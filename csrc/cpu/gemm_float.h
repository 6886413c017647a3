// Products of f32, bf16 and f16, accumulated in f32: policies, epilogues, and the choice among them.
#pragma once

#include "gemm.h"
#include "simd_math.h"
#if defined(__AMX_BF16__)
#include "gemm_amx.h"
#endif

namespace flashperf::gemm {

// Left operand f32, right operand of any float type with one k per step.
template <class T>
struct Fma {
  using A = float;
  using B = T;
  using Acc = float;
  using V = vf;
  static constexpr int kDepth = 1, kRows = kMaxRows;
  static V load(const B* b) { return simd::load(b); }
  static V spread(const A* a) { return simd::splat(*a); }
  static V multiply_add(V acc, V a, V b) { return acc + a * b; }
};

// Left operand f32, right operand pairs of bf16: the upper half of a lane is already the float of the odd k.
struct FmaPairs {
  using A = float;
  using B = bf16;
  using Acc = float;
  using V = vf;
  struct Pair {
    V even, odd;
  };
  static constexpr int kDepth = 2, kRows = kMaxRows * 2 / 3;
  static Pair load(const B* b) {
    const vi lanes = lanes_of(b);
    return {(V)(lanes << 16), (V)(lanes & static_cast<int32_t>(0xffff0000u))};
  }
  static Pair spread(const A* a) { return {simd::splat(a[0]), simd::splat(a[1])}; }
  static V multiply_add(V acc, Pair a, Pair b) { return acc + a.even * b.even + a.odd * b.odd; }
};

#if defined(__AVX512BF16__)
// Both operands bf16, multiplied in pairs. Where it starts as often as a float multiply-add does, it does
// twice the work; Intel's start at most half as often, and what it saves there is widening, which more rows
// share.
struct DotPairs {
  using A = bf16;
  using B = bf16;
  using Acc = float;
  using V = vf;
  static constexpr int kDepth = 2, kRows = kMaxRows;
  static __m512bh load(const B* b) { return (__m512bh)_mm512_loadu_si512(b); }
  static __m512bh spread(const A* a) {
    int32_t pair;
    std::memcpy(&pair, a, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static V multiply_add(V acc, __m512bh a, __m512bh b) { return (V)_mm512_dpbf16_ps((__m512)acc, a, b); }
};

// Whether products of so many rows are made of dots: of Zen 4 on AMD's. `flashperf roofs` shows both peaks.
inline bool by_dots(int64_t m) {
  static const bool is_amd = __builtin_cpu_is("amd");
  return m == 1 || is_amd;
}
#endif

// y = x @ w: two neighbouring vectors of columns, converted to T.
template <class T>
struct Store {
  static constexpr bool kGated = false;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vf lo, vf hi) const {
    T* out = y + row * n + col;
    const int64_t left = n - col;
    if (left >= 2 * W) {
      simd::store(out, lo);
      simd::store(out + W, hi);
    } else {
      store_some(out, lo, left);
      if (left > W) store_some(out + W, hi, left - W);
    }
  }
};

// y = silu(x @ gate) * (x @ up): the same columns of both products meet in registers.
template <class T>
struct StoreSwiglu {
  static constexpr bool kGated = true;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vf gate, vf up) const {
    store_some(y + row * n + col, simd::silu(gate) * up, n - col);
  }
};

// Rows of x as f32 of `row_length` >= k, padded with zeros: x itself where nothing is to do.
template <class T>
const float* as_float(const T* x, int64_t rows, int64_t k, int64_t row_length) {
  if constexpr (std::is_same_v<T, float>) {
    if (row_length == k) return x;
  }
  float* out = scratch<Buffer::kLeft, float>(rows * row_length);
  for (int64_t r = 0; r < rows; ++r) {
    float* to = out + r * row_length;
    int64_t i = 0;
    for (; i + W <= k; i += W) simd::store(to + i, simd::load(x + r * k + i));
    for (; i < row_length; ++i) to[i] = i < k ? simd::to_float(x[r * k + i]) : 0.0f;
  }
  return out;
}

// Rows of bf16 that can be read in pairs: those of odd length are copied, each with a zero at the end.
inline const bf16* whole_pairs(const bf16* x, int64_t rows, int64_t k) {
  if (k % 2 == 0) return x;
  bf16* out = scratch<Buffer::kLeft, bf16>(rows * (k + 1));
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(x + r * k, k, out + r * (k + 1));
    out[r * (k + 1) + k] = {};
  }
  return out;
}

// Up to so many rows, reading the right operand where it lies beats bringing its panels into a better form
// first: packing f32 saves strides, widening a half type a conversion per tile, and AMX needs panels of
// pairs.
#if defined(__AMX_BF16__)
template <class T>
constexpr int64_t kFewRows = std::is_same_v<T, float>  ? 96
                             : std::is_same_v<T, bf16> ? 2
                                                       : kMaxRows;
#else
template <class T>
constexpr int64_t kFewRows = std::is_same_v<T, float> ? 96 : kMaxRows;
#endif

// A row-major operand that is larger than this does not stay in L2 from one panel to the next; it is
// multiplied in stretches of rows, for the same reason as it is packed so.
constexpr int64_t kStreamedBytes = 3 << 19;

// The product of x[m, k] with packed panels of w[k, n]; with w2 too if the epilogue is gated.
template <class T, class E>
void product_packed(const T* x, int64_t m, int64_t k, int64_t n, const T* w, const T* w2, const E& epilogue) {
  const auto in_place = [&](const T* matrix) { return packed_source(matrix, k, n); };
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (m > amx::kFewRows) return amx::multiply(x, m, k, n, in_place(w), in_place(w2), epilogue);
  }
#endif
  const int64_t length = ceil_div(k, kGroup<T>) * kGroup<T>;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (by_dots(m))
      return multiply<DotPairs>(whole_pairs(x, m, k), length, m, length / 2, n, in_place(w), in_place(w2),
                                epilogue);
  }
#endif
  const float* a = as_float(x, m, k, length);
  if constexpr (std::is_same_v<T, float>) {
    multiply<Fma<float>>(a, k, m, k, n, in_place(w), in_place(w2), epilogue);
  } else if (m > kMaxRows) {
    const auto wide = [&](const T* matrix) { return widened_source(matrix, k, n); };
    multiply<Fma<float>>(a, length, m, length, n, wide(w), wide(w2), epilogue);
  } else {
    using P = std::conditional_t<std::is_same_v<T, bf16>, FmaPairs, Fma<f16>>;
    multiply<P>(a, length, m, length / P::kDepth, n, in_place(w), in_place(w2), epilogue);
  }
}

// The same product with w, and w2, row-major.
template <class T, class E>
void product_rows(const T* x, int64_t m, int64_t k, int64_t n, const T* w, const T* w2, const E& epilogue) {
  if (m <= kFewRows<T>) {
    const auto in_place = [&](const T* matrix) { return rows_source(matrix, k, n); };
    const int64_t stretch = k * n * static_cast<int64_t>(sizeof(T)) > kStreamedBytes ? kStretch : k;
    return multiply<Fma<T>>(as_float(x, m, k, k), k, m, k, n, in_place(w), in_place(w2), epilogue, stretch);
  }
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    const auto pairs = [&](const T* matrix) { return panels_of_rows<2, bf16>(matrix, k, n, m <= 32); };
    return amx::multiply(x, m, k, n, pairs(w), pairs(w2), epilogue);
  }
#endif
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (by_dots(m)) {
      const auto pairs = [&](const T* matrix) { return panels_of_rows<2, bf16>(matrix, k, n); };
      const int64_t length = ceil_div(k, 2) * 2;
      return multiply<DotPairs>(whole_pairs(x, m, k), length, m, length / 2, n, pairs(w), pairs(w2),
                                epilogue);
    }
  }
#endif
  const auto panels = [&](const T* matrix) { return panels_of_rows<1, float>(matrix, k, n); };
  multiply<Fma<float>>(as_float(x, m, k, k), k, m, k, n, panels(w), panels(w2), epilogue);
}

}  // namespace flashperf::gemm
