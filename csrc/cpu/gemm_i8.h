// Products of int8, accumulated exactly in int32: one policy per instruction set, and the epilogues.
#pragma once

#include "gemm.h"
#include "simd_math.h"
#if defined(__AMX_INT8__)
#include "gemm_amx.h"
#endif

namespace flashperf::gemm {

#if defined(__AVX512VNNI__)
// Four products per lane, unsigned by signed: the left operand is stored with 128 added, and 128 times the
// column sums is taken off in the end.
struct DotQuads {
  using A = uint8_t;
  using B = int8_t;
  using Acc = int32_t;
  using V = vi;
  static constexpr int kDepth = 4, kRows = kMaxRows;
  static constexpr bool kOffset = true;
  static V load(const B* b) { return lanes_of(b); }
  static V spread(const A* a) {
    int32_t quad;
    std::memcpy(&quad, a, 4);
    return quad - V{};
  }
  static V multiply_add(V acc, V a, V b) {
    return (V)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
  }
  static void convert(const int8_t* q, A* a) {
    for (int i = 0; i < 4; ++i) a[i] = static_cast<uint8_t>(q[i] + 128);
  }
};
#endif

#if defined(__AVX2__)
// Widened to int16 and multiplied in pairs. The shorter way, int8 straight into pairs of int16 sums
// (vpmaddubsw), saturates: 2 * 255 * 127 is more than 32767.
struct SignedQuads {
  using A = int16_t;
  using B = int8_t;
  using Acc = int32_t;
  using V = vi;
  struct Quad {
    V even, odd;  // elements 0 and 2 of each quad, 1 and 3 of each quad
  };
  static constexpr int kDepth = 4, kRows = kMaxRows * 2 / 3;
  static constexpr bool kOffset = false;
#if defined(__AVX512BW__)
  static Quad load(const B* b) {
    const __m512i quads = _mm512_loadu_si512(b);
    return {(V)_mm512_srai_epi16(_mm512_slli_epi16(quads, 8), 8), (V)_mm512_srai_epi16(quads, 8)};
  }
  static V dot(V a, V b) { return (V)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#else
  static Quad load(const B* b) {
    const __m256i quads = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    return {(V)_mm256_srai_epi16(_mm256_slli_epi16(quads, 8), 8), (V)_mm256_srai_epi16(quads, 8)};
  }
  static V dot(V a, V b) { return (V)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#endif
  static Quad spread(const A* a) {
    int32_t pairs[2];
    std::memcpy(pairs, a, 8);
    return {pairs[0] - V{}, pairs[1] - V{}};
  }
  static V multiply_add(V acc, Quad a, Quad b) { return acc + dot(a.even, b.even) + dot(a.odd, b.odd); }
  static void convert(const int8_t* q, A* a) {
    a[0] = q[0];
    a[1] = q[2];
    a[2] = q[1];
    a[3] = q[3];
  }
};
#else
struct SignedQuads {
  using A = int32_t;
  using B = int8_t;
  using Acc = int32_t;
  using V = vi;
  struct Quad {
    V e[4];
  };
  static constexpr int kDepth = 4, kRows = 2;
  static constexpr bool kOffset = false;
  static Quad load(const B* b) {
    const vi quads = lanes_of(b);
    return {{(quads << 24) >> 24, (quads << 16) >> 24, (quads << 8) >> 24, quads >> 24}};
  }
  static const A* spread(const A* a) { return a; }
  static V multiply_add(V acc, const A* a, const Quad& b) {
    return acc + a[0] * b.e[0] + a[1] * b.e[1] + a[2] * b.e[2] + a[3] * b.e[3];
  }
  static void convert(const int8_t* q, A* a) {
    for (int i = 0; i < 4; ++i) a[i] = q[i];
  }
};
#endif

#if defined(__AVX512VNNI__)
using Quads = DotQuads;
#else
using Quads = SignedQuads;
#endif

inline void sum_columns(const int8_t* w, int64_t k, int64_t n, int32_t* sums) {
  std::fill(sums, sums + n, 0);
  for (int64_t row = 0; row < k; ++row)
    for (int64_t col = 0; col < n; ++col) sums[col] += w[row * n + col];
}

// Rows of q in the form that P reads, padded with zeros to whole quads.
template <class P>
const typename P::A* left_quads(const int8_t* q, int64_t m, int64_t k) {
  const int64_t length = ceil_div(k, 4) * 4;
  auto* out = scratch<Buffer::kLeft, typename P::A>(m * length);
  for (int64_t r = 0; r < m; ++r) {
    auto* to = out + r * length;
    const int8_t* row = q + r * k;
    int64_t i = 0;
    for (; i + 4 <= k; i += 4) P::convert(row + i, to + i);
    if (i < k) {
      int8_t last[4] = {};
      std::copy_n(row + i, k - i, last);
      P::convert(last, to + i);
    }
  }
  return out;
}

// The first min(n, W) numbers; a part of a vector is moved as the floats that have the same bits.
inline vf load_some(const float* p, int64_t n) { return n >= W ? simd::load(p) : simd::load_part(p, n); }
inline vi load_some(const int32_t* p, int64_t n) {
  return n >= W ? lanes_of(p) : (vi)simd::load_part(reinterpret_cast<const float*>(p), n);
}
inline void store_some(int32_t* p, vi x, int64_t n) {
  if (n >= W) *reinterpret_cast<vi*>(p) = x;
  else simd::store_part(reinterpret_cast<float*>(p), (vf)x, n);
}

// Adds what was left out to the sums before the actual epilogue: one number per column, to whole panels.
template <class E>
struct WithOffset {
  static constexpr bool kGated = E::kGated;
  E inner;
  const int32_t* offsets;
  const int32_t* offsets2;
  void operator()(int64_t row, int64_t col, vi lo, vi hi) const {
    lo += lanes_of(offsets + col);
    hi += lanes_of(kGated ? offsets2 + col : offsets + col + W);
    inner(row, col, lo, hi);
  }
};

// -128 times the column sums, up to the end of the last panel.
template <Buffer Use>
const int32_t* offsets_of(const int32_t* sums, int64_t n) {
  int32_t* out = scratch<Use, int32_t>(ceil_div(n, kPanel) * kPanel);
  for (int64_t i = 0; i < n; ++i) out[i] = -128 * sums[i];
  return out;
}

struct StoreInt {
  static constexpr bool kGated = false;
  int32_t* acc;
  int64_t n;
  void operator()(int64_t row, int64_t col, vi lo, vi hi) const {
    store_some(acc + row * n + col, lo, n - col);
    if (n - col > W) store_some(acc + row * n + col + W, hi, n - col - W);
  }
};

// One vector of sums as floats; the scales are multiplied first, as the separate dequantisation does.
inline vf dequantized(vi acc, float x_scale, const float* w_scale, int64_t left) {
  return __builtin_convertvector(acc, vf) * (x_scale * load_some(w_scale, left));
}

template <class T>
struct StoreDequantized {
  static constexpr bool kGated = false;
  const float* x_scale;
  const float* w_scale;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vi lo, vi hi) const {
    const int64_t left = n - col;
    T* out = y + row * n + col;
    store_some(out, dequantized(lo, x_scale[row], w_scale + col, left), left);
    if (left > W) store_some(out + W, dequantized(hi, x_scale[row], w_scale + col + W, left - W), left - W);
  }
};

template <class T>
struct StoreSwigluDequantized {
  static constexpr bool kGated = true;
  const float* x_scale;
  const float* gate_scale;
  const float* up_scale;
  T* y;
  int64_t n;
  void operator()(int64_t row, int64_t col, vi gate, vi up) const {
    const int64_t left = n - col;
    const vf g = dequantized(gate, x_scale[row], gate_scale + col, left);
    const vf u = dequantized(up, x_scale[row], up_scale + col, left);
    store_some(y + row * n + col, simd::silu(g) * u, left);
  }
};

// A packed int8 matrix with the sums of its columns.
struct PackedI8 {
  const int8_t* panels = nullptr;
  const int32_t* sums = nullptr;
};

template <class E>
void product_i8(const int8_t* q, int64_t m, int64_t k, int64_t n, PackedI8 w, PackedI8 w2,
                const E& epilogue) {
  const Source<int8_t> first = packed_source(w.panels, k, n), second = packed_source(w2.panels, k, n);
#if defined(__AMX_INT8__)
  if (m > amx::kFewRows) return amx::multiply(q, m, k, n, first, second, epilogue);
#endif
  const int64_t quads = ceil_div(k, 4);
  const auto* a = left_quads<Quads>(q, m, k);
  if constexpr (Quads::kOffset) {
    const int32_t* offsets = offsets_of<Buffer::kEdge>(w.sums, n);
    const int32_t* offsets2 = E::kGated ? offsets_of<Buffer::kEdge2>(w2.sums, n) : nullptr;
    const WithOffset<E> corrected{epilogue, offsets, offsets2};
    multiply<Quads>(a, quads * 4, m, quads, n, first, second, corrected);
  } else {
    multiply<Quads>(a, quads * 4, m, quads, n, first, second, epilogue);
  }
}

}  // namespace flashperf::gemm
