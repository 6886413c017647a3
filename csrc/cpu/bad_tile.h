// A tile as an untuned kernel has it: 4 rows x 16 columns, depth 16, on weights as they are stored.
//
// The order is that of a tutorial's tiled kernel (for example the 16 x 16 x 16 tile of the CUDA C++
// Programming Guide's shared-memory product): columns outside, rows, then depth in steps of 16, the sums of
// the tile handed through memory between steps. What makes it bad is what it leaves out: too few independent
// sums to hide the latency of a multiply-add, weights read again for every four rows with a stride of n, and
// sums that leave the registers sixteen times more often than they must. Arithmetic and flags are those of
// the good kernels.
#pragma once

#include "simd.h"

namespace flashperf::bad_tile {

constexpr int kRows = 4, kCols = 16, kDepth = 16;

// sums[rows][16] += x[rows, depth] w[depth, 16]; not inlined, so that sums go through memory as in a kernel's
// tile.
template <int Rows, class T>
__attribute__((noinline)) void add(const T* x, int64_t ldx, const T* w, int64_t ldw, float* sums, int depth) {
  constexpr int kVectors = kCols / simd::kWidth;
  simd::vf s[Rows][kVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kVectors; ++v) s[r][v] = simd::load(sums + r * kCols + v * simd::kWidth);
  for (int p = 0; p < depth; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      const simd::vf b = simd::load(w + p * ldw + v * simd::kWidth);
      for (int r = 0; r < Rows; ++r) s[r][v] += simd::splat(simd::to_float(x[r * ldx + p])) * b;
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kVectors; ++v) simd::store(sums + r * kCols + v * simd::kWidth, s[r][v]);
}

// The INT8 twin. With VNNI, quads of rows are interleaved for dpbusd each time they are used, since nobody
// packed them; it wants unsigned operands on one side, so 128 is added to x and 128 times the column's sum
// taken off again.
template <int Rows>
__attribute__((noinline)) void add(const int8_t* x, int64_t ldx, const int8_t* w, int64_t ldw, int32_t* sums,
                                   int depth) {
  int p = 0;
#if defined(__AVX512VNNI__)
  __m512i s[Rows];
  for (int r = 0; r < Rows; ++r) s[r] = _mm512_loadu_si512(sums + r * kCols);
  __m512i columns = _mm512_setzero_si512();
  for (; p + 4 <= depth; p += 4) {
    __m128i row[4];
    for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + (p + i) * ldw));
    const __m128i low01 = _mm_unpacklo_epi8(row[0], row[1]), high01 = _mm_unpackhi_epi8(row[0], row[1]);
    const __m128i low23 = _mm_unpacklo_epi8(row[2], row[3]), high23 = _mm_unpackhi_epi8(row[2], row[3]);
    __m512i b = _mm512_castsi128_si512(_mm_unpacklo_epi16(low01, low23));
    b = _mm512_inserti32x4(b, _mm_unpackhi_epi16(low01, low23), 1);
    b = _mm512_inserti32x4(b, _mm_unpacklo_epi16(high01, high23), 2);
    b = _mm512_inserti32x4(b, _mm_unpackhi_epi16(high01, high23), 3);
    columns = _mm512_dpbusd_epi32(columns, _mm512_set1_epi8(1), b);
    for (int r = 0; r < Rows; ++r) {
      int32_t quad;
      std::memcpy(&quad, x + r * ldx + p, 4);
      s[r] = _mm512_dpbusd_epi32(s[r], _mm512_set1_epi32(quad ^ static_cast<int32_t>(0x80808080u)), b);
    }
  }
  const __m512i excess = _mm512_slli_epi32(columns, 7);
  for (int r = 0; r < Rows; ++r) _mm512_storeu_si512(sums + r * kCols, _mm512_sub_epi32(s[r], excess));
#endif
  for (; p < depth; ++p)
    for (int r = 0; r < Rows; ++r)
      for (int j = 0; j < kCols; ++j) sums[r * kCols + j] += int32_t{x[r * ldx + p]} * w[p * ldw + j];
}

// Columns that do not fill a tile: element by element.
template <class T, class Sum>
void add_edge(const T* x, int64_t ldx, const T* w, int64_t ldw, Sum* sums, int rows, int cols,
              int64_t depth) {
  for (int64_t p = 0; p < depth; ++p)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < cols; ++j) {
        if constexpr (std::is_same_v<Sum, float>)
          sums[r * kCols + j] += simd::to_float(x[r * ldx + p]) * simd::to_float(w[p * ldw + j]);
        else sums[r * kCols + j] += Sum{x[r * ldx + p]} * w[p * ldw + j];
      }
}

// y[m, n] = x[m, k] w[k, n]
template <class T, class Sum, class Out>
void product(const T* x, const T* w, Out* y, int64_t m, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; j += kCols) {
    const int cols = static_cast<int>(std::min<int64_t>(kCols, n - j));
    for (int64_t i = 0; i < m; i += kRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kRows, m - i));
      Sum sums[kRows * kCols] = {};
      for (int64_t p = 0; p < k; p += kDepth) {
        const int depth = static_cast<int>(std::min<int64_t>(kDepth, k - p));
        const T *left = x + i * k + p, *right = w + p * n + j;
        if (cols < kCols) add_edge(left, k, right, n, sums, rows, cols, depth);
        else if (rows == 4) add<4>(left, k, right, n, sums, depth);
        else if (rows == 3) add<3>(left, k, right, n, sums, depth);
        else if (rows == 2) add<2>(left, k, right, n, sums, depth);
        else add<1>(left, k, right, n, sums, depth);
      }
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) {
          if constexpr (std::is_same_v<Sum, float>)
            y[(i + r) * n + j + c] = simd::from_float<Out>(sums[r * kCols + c]);
          else y[(i + r) * n + j + c] = sums[r * kCols + c];
        }
    }
  }
}

}  // namespace flashperf::bad_tile
