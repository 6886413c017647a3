// The register-tiled products, transpositions and scratch memory that the attention kernels share.
#pragma once

#include <algorithm>
#include <vector>

#include "rowwise.h"

namespace flashperf::simd {

// The accumulators of a product: kRows x kVectors vectors, which with the operands just fit the 32 (AVX-512)
// or 16 registers, and are at least the 8 independent chains that two units with a latency of 4 cycles need.
#if defined(__AVX512F__)
constexpr int kRows = 8, kVectors = 3;
#else
constexpr int kRows = 4, kVectors = 2;
#endif
constexpr int kLanes = kVectors * kWidth;  // rows of a tile
constexpr int64_t kKeys = 64;  // keys per block: its K and V stay in the L1 cache between their uses

// Memory of one thread that only grows: a bound call allocates the first time it runs, at most.
inline float* scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  constexpr size_t kLine = 16;
  if (memory.size() < static_cast<size_t>(floats) + kLine) memory.resize(static_cast<size_t>(floats) + kLine);
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kLine - at / sizeof(float) % kLine) % kLine;
}

inline int64_t padded(int64_t n) { return (n + kWidth - 1) / kWidth * kWidth; }

inline vf shuffle(vf a, vf b, const int32_t (&lane)[kWidth]) {  // lanes of b count on from kWidth
#if defined(__clang__)
  vf y;
  for (int l = 0; l < kWidth; ++l) y[l] = lane[l] < kWidth ? a[lane[l]] : b[lane[l] - kWidth];
  return y;
#else
  return __builtin_shuffle(a, b, *reinterpret_cast<const vi*>(lane));
#endif
}

// How two vectors trade the lanes whose number has bit `Step`, as index tables that the compiler knows.
template <int Step>
struct Trade {
  int32_t low[kWidth] = {}, high[kWidth] = {}, kept[kWidth] = {}, crossed[kWidth] = {};
  constexpr Trade() {
    for (int l = 0; l < kWidth; ++l) {
      low[l] = l & Step ? kWidth + l - Step : l;
      high[l] = l & Step ? kWidth + l : l + Step;
      kept[l] = l & Step ? kWidth + l : l;
      crossed[l] = l & Step ? kWidth + l - Step : l + Step;
    }
  }
};
template <int Step>
alignas(64) constexpr Trade<Step> kTrade{};

// x[i][l] becomes x[l][i]: log2(kWidth) rounds in which rows trade ever larger halves.
template <int Step = 1>
inline void transpose(vf (&x)[kWidth]) {
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if (i & Step) continue;
    const vf a = x[i], b = x[i + Step];
    x[i] = shuffle(a, b, kTrade<Step>.low);
    x[i + Step] = shuffle(a, b, kTrade<Step>.high);
  }
  if constexpr (Step * 2 < kWidth) transpose<Step * 2>(x);
}

// Lane i of the result is the sum over the lanes of x[i]: a third of the work of kWidth sums one by one.
template <int Step = 1>
inline vf sums_of_each(vf (&x)[kWidth]) {
#pragma GCC unroll 8
  for (int i = 0; i < kWidth; i += 2 * Step) {
    const vf a = x[i], b = x[i + Step];
    x[i] = shuffle(a, b, kTrade<Step>.kept) + shuffle(a, b, kTrade<Step>.crossed);
  }
  if constexpr (Step * 2 < kWidth) return sums_of_each<Step * 2>(x);
  else return x[0];
}

// Where the operands of a product lie: a[r][k] at a[r * row + k * step], b[k][.] at b[k * b_row].
template <class B>
struct Operands {
  const float* a;
  int64_t row, step;
  const B* b;
  int64_t b_row;
  int64_t depth;
};

// c[r][0..V vectors] = (fresh ? 0 : c) + sum over k of a[r][k] * b[k][...]; the last vector has `tail`
// elements.
template <int R, int V, bool Tail, class B>
inline void multiply_tile(const Operands<B>& p, float* c, int64_t c_row, bool fresh, int64_t tail) {
  vf sum[R][V] = {};
  if (!fresh)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = load(c + r * c_row + v * kWidth);
  const float* a = p.a;
  const B* b = p.b;
  for (int64_t k = 0; k < p.depth; ++k, a += p.step, b += p.b_row) {
    vf column[V];
    for (int v = 0; v < V; ++v) {
      if constexpr (Tail) column[v] = load_part(b, tail);
      else column[v] = load(b + v * kWidth);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * p.row] * column[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c + r * c_row + v * kWidth, sum[r][v]);
}

template <int V, bool Tail, class B>
void multiply_rows(Operands<B> p, int64_t rows, float* c, int64_t c_row, bool fresh, int64_t tail) {
  const auto run = [&](auto count) {
    constexpr int R = decltype(count)::value;
    for (; rows >= R; rows -= R, p.a += R * p.row, c += R * c_row)
      multiply_tile<R, V, Tail>(p, c, c_row, fresh, tail);
  };
  run(std::integral_constant<int, kRows>());
  if constexpr (kRows > 4) run(std::integral_constant<int, 4>());
  run(std::integral_constant<int, 2>());
  run(std::integral_constant<int, 1>());
}

// c[rows][cols] (+)= a * b. Rows of c have padded(cols) floats.
template <class B>
void multiply(Operands<B> p, int64_t rows, int64_t cols, float* c, int64_t c_row, bool fresh) {
  const auto run = [&](auto count) {
    constexpr int V = decltype(count)::value;
    for (; cols >= V * kWidth; cols -= V * kWidth, p.b += V * kWidth, c += V * kWidth)
      multiply_rows<V, false>(p, rows, c, c_row, fresh, 0);
  };
  run(std::integral_constant<int, kVectors>());
  if constexpr (kVectors > 2) run(std::integral_constant<int, 2>());
  run(std::integral_constant<int, 1>());
  if (cols > 0) multiply_rows<1, true>(p, rows, c, c_row, fresh, cols);
}

// The block as floats: itself if it is, else converted into `buffer`.
template <class T>
inline const float* as_floats(const T* x, int64_t n, float* buffer) {
  if constexpr (std::is_same_v<T, float>) return x;
  else {
    map(n, buffer, [](vf v) { return v; }, x);
    return buffer;
  }
}

// to[c][r] = from[r][c] * scale for `rows` <= kWidth rows; lanes beyond the last row become 0.
template <class T>
inline void transpose_in(const T* from, int64_t from_row, int64_t rows, int64_t cols, float* to,
                         int64_t to_row, float scale) {
  for (int64_t c = 0; c < cols; c += kWidth) {
    const int64_t n = std::min<int64_t>(kWidth, cols - c);
    vf square[kWidth] = {};
    for (int64_t r = 0; r < rows; ++r)
      square[r] =
          scale * (n == kWidth ? load(from + r * from_row + c) : load_part(from + r * from_row + c, n));
    transpose(square);
    for (int64_t j = 0; j < n; ++j) store(to + (c + j) * to_row, square[j]);
  }
}

// to[r][c] = from[c][r]: the way back, for `rows` <= kWidth rows.
template <class T>
inline void transpose_out(const float* from, int64_t from_row, int64_t rows, int64_t cols, T* to,
                          int64_t to_row) {
  for (int64_t c = 0; c < cols; c += kWidth) {
    const int64_t n = std::min<int64_t>(kWidth, cols - c);
    vf square[kWidth] = {};
    for (int64_t j = 0; j < n; ++j) square[j] = load(from + (c + j) * from_row);
    transpose(square);
    for (int64_t r = 0; r < rows; ++r) {
      if (n == kWidth) store(to + r * to_row + c, square[r]);
      else store_part(to + r * to_row + c, square[r], n);
    }
  }
}

}  // namespace flashperf::simd
