// The register tile that every matrix product here is made of, and the loop that drives it.
//
// A tile is R rows by 2W columns (W lanes per vector). Each step loads two vectors of the right operand,
// broadcasts one element (or pair, or quad) of the left operand per row, and does 2R multiply-adds. The
// accumulators stay in registers over the whole of k, so the output is written once. What differs between
// element types and instruction sets is a policy: how to load, how to broadcast, how to multiply.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "gemm_source.h"

namespace flashperf::gemm {

#if defined(__AVX512F__)
constexpr int kMaxRows = 14;  // 28 accumulators, 2 loads and 1 broadcast in 32 registers
#else
constexpr int kMaxRows = 6;  // 12 accumulators, 2 loads and 1 broadcast in 16 registers
#endif

// x - 0, not 0 + x: the compiler may drop the subtraction, but not an addition that turns -0 into +0.
inline vf broadcast(float x) { return x - vf{}; }

// The first min(n, W) lanes of x.
template <class T>
inline void store_some(T* p, vf x, int64_t n) {
  if (n >= W) simd::store(p, x);
  else simd::store_part(p, x, n);
}

// Where a tile finds its two vectors of columns at each step: W columns of a panel and the next W, or the
// same W columns of two matrices. `step` is in elements.
template <class B>
struct TileColumns {
  const B* first;
  const B* second;
  int64_t step;
};

// c[r, 0..2W) = sum over k of a[r, k] * (first[k], second[k]), added to what c holds if `onto`. A
// multiply-add takes four cycles and two start in each: with few rows, U steps accumulate apart to have eight
// in flight.
template <class P, int R>
void tile(const typename P::A* a, int64_t a_row, TileColumns<typename P::B> b, int64_t steps, bool onto,
          typename P::Acc* c) {
  using V = typename P::V;
  constexpr int U = R == 1 ? 4 : R <= 3 ? 2 : 1;
  V acc[U][R][2] = {};
  if (onto) {
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      acc[0][r][0] = *reinterpret_cast<V*>(c + r * 2 * W);
      acc[0][r][1] = *reinterpret_cast<V*>(c + r * 2 * W + W);
    }
  }
  const auto one_step = [&](int u) {
    const auto first = P::load(b.first), second = P::load(b.second);
    b.first += b.step;
    b.second += b.step;
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      const auto x = P::spread(a + r * a_row);
      acc[u][r][0] = P::multiply_add(acc[u][r][0], x, first);
      acc[u][r][1] = P::multiply_add(acc[u][r][1], x, second);
    }
    a += P::kDepth;
  };
  int64_t s = 0;
  for (; s + U <= steps; s += U) {
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) one_step(u);
  }
  for (; s < steps; ++s) one_step(0);
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int u = 1; u < U; ++u) {
      acc[0][r][0] += acc[u][r][0];
      acc[0][r][1] += acc[u][r][1];
    }
    *reinterpret_cast<V*>(c + r * 2 * W) = acc[0][r][0];
    *reinterpret_cast<V*>(c + r * 2 * W + W) = acc[0][r][1];
  }
}

template <class P>
using Tile = void (*)(const typename P::A*, int64_t, TileColumns<typename P::B>, int64_t, bool,
                      typename P::Acc*);
template <class P, int... R>
constexpr std::array<Tile<P>, sizeof...(R)> tiles_of(std::integer_sequence<int, R...>) {
  return {tile<P, R + 1>...};
}
template <class P>
constexpr auto kTiles = tiles_of<P>(std::make_integer_sequence<int, P::kRows>{});

// A stretch of k, in steps. Sums of an earlier stretch are in memory; only the last one hands rows on.
struct Stretch {
  int64_t start, steps;
  bool first, last;
};

// Rows [row0, row0 + rows) against one tile's columns. The blocks of rows are as even as they can be: 16 rows
// are 8 and 8, not 14 and 2, because a tile of two rows does little with each load. `sums` has room for all
// rows, or for one block if all of k is one stretch.
template <class P, class E>
void multiply_rows(const typename P::A* a, int64_t a_row, int64_t row0, int64_t rows,
                   TileColumns<typename P::B> b, Stretch k, typename P::Acc* sums, int64_t col, Ahead next,
                   const E& epilogue) {
  using V = typename P::V;
  const int64_t blocks = ceil_div(rows, P::kRows);
  for (int64_t block = 0, row = row0; block < blocks; ++block) {
    const int64_t height = rows / blocks + (block < rows % blocks);
    if (blocks > 2) next.fetch(block, blocks);
    const int64_t at = row * a_row + k.start * P::kDepth;
    kTiles<P>[height - 1](a + at, a_row, b, k.steps, !k.first, sums);
    if (k.last) {
      for (int64_t r = 0; r < height; ++r) {
        const auto* c = reinterpret_cast<const V*>(sums + r * 2 * W);
        epilogue(row + r, col, c[0], c[1]);
      }
    }
    row += height;
    if (!(k.first && k.last)) sums += height * 2 * W;
  }
}

// The whole product. The epilogue takes the finished rows of a tile; with E::kGated the tile holds the same W
// columns of two products, else 2W columns of one, and `second` is not used. With `stretch` less than
// `steps`, all columns are gone through for every stretch of k: see product_rows.
template <class P, class E>
void multiply(const typename P::A* a, int64_t a_row, int64_t m, int64_t steps, int64_t n,
              const Source<typename P::B>& first, const Source<typename P::B>& second, const E& epilogue,
              int64_t stretch = INT64_MAX) {
  constexpr int64_t kColumns = E::kGated ? W : 2 * W;
  const int64_t height = left_rows(a_row * static_cast<int64_t>(sizeof(typename P::A)));
  const int64_t tile_sums = 2 * W * (stretch < steps ? std::min(height, m) : P::kRows);
  const int64_t tiles = stretch < steps ? ceil_div(n, kColumns) : 1;
  auto* sums = scratch<Buffer::kSums, typename P::Acc>(tiles * tile_sums);
  for (int64_t row0 = 0; row0 < m; row0 += height) {
    const int64_t rows = std::min(height, m - row0);
    for (int64_t start = 0; start < steps; start += stretch) {
      const int64_t depth = std::min(stretch, steps - start);
      const Stretch k{start, depth, start == 0, start + depth == steps};
      auto* c = sums;
      for (int64_t col0 = 0; col0 < n; col0 += kPanel) {
        const auto one = first.template panel<Buffer::kRight>(col0 / kPanel, row0 == 0 && k.first);
        TileColumns<typename P::B> b{one.data + start * one.step, nullptr, one.step};
        b.second = b.first + W * P::kDepth;
        if constexpr (E::kGated)
          b.second = second.template panel<Buffer::kRight2>(col0 / kPanel, row0 == 0 && k.first).data +
                     start * one.step;
        const Ahead next = first.template ahead<Buffer::kRight>(col0 / kPanel + 1);
        for (int64_t col = col0; col < std::min(n, col0 + kPanel); col += kColumns) {
          multiply_rows<P>(a, a_row, row0, rows, b, k, c, col, col == col0 ? next : Ahead{}, epilogue);
          b.first += kColumns * P::kDepth;
          b.second += kColumns * P::kDepth;
          if (tiles > 1) c += tile_sums;
        }
      }
    }
  }
}

}  // namespace flashperf::gemm
