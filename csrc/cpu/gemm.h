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

// A block of rows: where it starts in the left operand and in the output, and how many there are. Blocks are
// as even as they can be: 16 rows are 8 and 8, not 14 and 2, because a tile of two rows does little with each
// load.
template <class P>
struct RowBlock {
  const typename P::A* a;
  int64_t a_row, row, height;

  static RowBlock of(const typename P::A* a, int64_t a_row, int64_t m, int64_t block) {
    const int64_t blocks = ceil_div(m, P::kRows), longer = m % blocks;
    const int64_t row = m / blocks * block + std::min(block, longer);
    return {a + row * a_row, a_row, row, m / blocks + (block < longer)};
  }
};

// Steps [start, end) of `steps`. Sums of earlier ones are in memory.
struct Stretch {
  int64_t start, end, steps;
  bool is_last() const { return end == steps; }
  bool is_whole() const { return start == 0 && is_last(); }
};

// A block of rows against the columns of one panel (or the same panel of two operands), given from step 0 on;
// returns the place for the sums of the next. Not inlined: into a larger loop, GCC spills what the tiles
// need.
template <class P, class E>
__attribute__((noinline)) typename P::Acc* multiply_panel(const RowBlock<P>& rows,
                                                          TileColumns<typename P::B> b, Stretch k,
                                                          int64_t col0, int64_t n, typename P::Acc* sums,
                                                          const E& epilogue) {
  using V = typename P::V;
  constexpr int64_t kColumns = E::kGated ? W : 2 * W;
  b.first += k.start * b.step;
  b.second += k.start * b.step;
  for (int64_t col = col0; col < std::min(n, col0 + kPanel); col += kColumns) {
    kTiles<P>[rows.height - 1](rows.a + k.start* P::kDepth, rows.a_row, b, k.end - k.start, k.start > 0,
                               sums);
    for (int64_t r = 0; k.is_last() && r < rows.height; ++r) {
      const auto* c = reinterpret_cast<const V*>(sums + r * 2 * W);
      epilogue(rows.row + r, col, c[0], c[1]);
    }
    b.first += kColumns * P::kDepth;
    b.second += kColumns * P::kDepth;
    if (!k.is_whole()) sums += rows.height * 2 * W;
  }
  return sums;
}

// The whole product. As many panels as fit into L2 are gone through for one group of row blocks after the
// other, so that outputs are written in long runs, and a panel serves a group while it is in L1. The epilogue
// takes the finished rows of a tile; with E::kGated the tile holds the same W columns of two products, else
// 2W columns of one, and `second` is not used. With a `stretch` of less than all steps, all panels are gone
// through for each of them.
template <class P, class E>
void multiply(const typename P::A* a, int64_t a_row, int64_t m, int64_t steps, int64_t n,
              const Source<typename P::B>& first, const Source<typename P::B>& second, const E& epilogue,
              int64_t stretch = INT64_MAX) {
  using B = typename P::B;
  const int64_t panels = ceil_div(n, kPanel), blocks = ceil_div(m, P::kRows);
  const bool is_whole = stretch >= steps;
  const int64_t at_once = is_whole ? panels_at_once<B>(n, steps * P::kDepth * kPanel) : panels;
  const int64_t row_bytes = a_row * static_cast<int64_t>(sizeof(typename P::A));
  const int64_t group = std::max<int64_t>(2, kLeftBytes / (row_bytes * P::kRows));
  const int64_t panel_sums = kPanel * (E::kGated ? 2 : 1);
  auto* kept = scratch<Buffer::kSums, typename P::Acc>(is_whole ? P::kRows * 2 * W : m * panels * panel_sums);
  for (int64_t p0 = 0; p0 < panels; p0 += at_once) {
    for (int64_t start = 0; start < steps; start += stretch) {
      const Stretch k{start, is_whole ? steps : std::min(steps, start + stretch), steps};
      auto* sums = kept;
      for (int64_t block0 = 0; block0 < blocks; block0 += group) {
        for (int64_t p = p0; p < std::min(panels, p0 + at_once); ++p) {
          const bool is_new = block0 == 0 && start == 0;
          const auto one = first.template panel<Buffer::kRight>(p, is_new);
          TileColumns<B> b{one.data, one.data + W * P::kDepth, one.step};
          if constexpr (E::kGated) b.second = second.template panel<Buffer::kRight2>(p, is_new).data;
          for (int64_t block = block0; block < std::min(blocks, block0 + group); ++block)
            sums =
                multiply_panel<P>(RowBlock<P>::of(a, a_row, m, block), b, k, p * kPanel, n, sums, epilogue);
        }
      }
      if (is_whole) break;
    }
  }
}

}  // namespace flashperf::gemm
