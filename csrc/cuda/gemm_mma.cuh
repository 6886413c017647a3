// Matrix products on Tensor Cores: mma.sync fed by ldmatrix from a multistage cp.async pipeline.
//
// A block of four warps makes 128 x 128 of the result, a warp 64 x 64 of it: per step of K it loads 8
// fragments for 32 products, which keeps shared memory (128 bytes per clock) behind the Tensor Cores. K
// advances by 64 bytes: 32 elements of 16 bits, 64 of int8, 16 of tf32.
#pragma once

#include "tile_copy.cuh"

namespace gemm {

constexpr int kBlockRows = 128, kBlockColumns = 128, kThreads = 128;
constexpr int kWarpRows = 64, kWarpColumns = 64;
constexpr int kRowTiles = kWarpRows / 16, kColumnTiles = kWarpColumns / 8;  // products of 16 x 8
constexpr int kStages = 4;

/// What a warp holds of the result; `Sum` is float or int.
template <class Sum>
using WarpSums = Sum[kRowTiles][kColumnTiles][4];

template <class Sum>
DEVICE void clear(WarpSums<Sum>& sums) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][j][r] = Sum(0);
}

DEVICE int warp_row() { return threadIdx.x / 32 / 2 * kWarpRows; }
DEVICE int warp_column() { return threadIdx.x / 32 % 2 * kWarpColumns; }

/// The four registers of A for 16 rows from `row` and two chunks of 16 bytes along K from `chunk`.
template <class Shape>
DEVICE void load_a(unsigned (&a)[4], const unsigned char* tile, int row, int chunk) {
  const int lane = threadIdx.x % 32;
  load_tiles(a, tile + Shape::offset(row + lane % 16, chunk + lane / 16));
}

/// Visit every pair of neighbouring sums: visit(row, column, first, second).
template <class Sum, class Visit>
DEVICE void for_each_pair(const WarpSums<Sum>& sums, int row0, int column0, Visit visit) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j)
        visit(row0 + i * 16 + lane / 4 + half * 8, column0 + j * 8 + lane % 4 * 2, sums[i][j][2 * half],
              sums[i][j][2 * half + 1]);
}

// ---- 16-bit operands: B is K x N, row-major, and turned by ldmatrix.trans
// ------------------------------------

template <class T>
struct SixteenBit {
  static constexpr int kDepth = 32;
  using ShapeA = TileShape<kBlockRows, 2 * kDepth>;
  using ShapeB = TileShape<kDepth, 2 * kBlockColumns>;
  static constexpr int kStageBytes = ShapeA::bytes + ShapeB::bytes;

  DEVICE static void multiply(WarpSums<float>& sums, const unsigned char* a_tile,
                              const unsigned char* b_tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      unsigned a[kRowTiles][4], b[kColumnTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_a<ShapeA>(a[i], a_tile, warp_row() + i * 16, step * 2);
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j)  // 16 rows of K by 16 columns: two products' worth
        load_tiles_transposed(
            b[j], b_tile + ShapeB::offset(step * 16 + lane % 16, warp_column() / 8 + j * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j)
          mma_16bit<T>(sums[i][j], a[i], reinterpret_cast<const unsigned (&)[2]>(b[j / 2][j % 2 * 2]));
    }
  }
};

/// The block's part of A B in `sums`; `shared` has kStages * SixteenBit<T>::kStageBytes bytes.
template <class T, bool aligned, class B = Matrix<T, aligned>>
DEVICE void product(WarpSums<float>& sums, const Matrix<T, aligned>& a, const B& b, unsigned char* shared) {
  using F = SixteenBit<T>;
  const int row0 = blockIdx.y * kBlockRows, column0 = blockIdx.x * kBlockColumns;
  clear<float>(sums);
  pipelined_loop<kStages>((a.columns + F::kDepth - 1) / F::kDepth,
                          [&](int tile, int stage) {
                            unsigned char* at = shared + stage * F::kStageBytes;
                            copy_tile<typename F::ShapeA, kThreads>(at, a, row0, tile * F::kDepth);
                            copy_tile<typename F::ShapeB, kThreads>(at + F::ShapeA::bytes, b,
                                                                    tile * F::kDepth, column0);
                          },
                          [&](int, int stage) {
                            const unsigned char* at = shared + stage * F::kStageBytes;
                            F::multiply(sums, at, at + F::ShapeA::bytes);
                          });
}

// ---- int8: B is given transposed, N x K, so that four elements of K lie in one register
// ----------------------

struct Int8 {
  static constexpr int kDepth = 64;
  using Shape = TileShape<kBlockRows, kDepth>;
  static constexpr int kStageBytes = 2 * Shape::bytes;

  DEVICE static void multiply(WarpSums<int>& sums, const unsigned char* a_tile, const unsigned char* b_tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kDepth / 32; ++step) {
      unsigned a[kRowTiles][4], b[kColumnTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_a<Shape>(a[i], a_tile, warp_row() + i * 16, step * 2);
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2;
           ++j)  // 8 columns' first and second chunk, then the next 8 columns'
        load_tiles(b[j], b_tile + Shape::offset(warp_column() + j * 16 + lane / 16 * 8 + lane % 8,
                                                step * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j)
          mma_s8(sums[i][j], a[i], reinterpret_cast<const unsigned (&)[2]>(b[j / 2][j % 2 * 2]));
    }
  }
};

/// The block's part of A B with B given as N x K.
template <bool aligned, class B = Matrix<signed char, aligned>>
DEVICE void product_int8(WarpSums<int>& sums, const Matrix<signed char, aligned>& a, const B& b_transposed,
                         unsigned char* shared) {
  using F = Int8;
  const int row0 = blockIdx.y * kBlockRows, column0 = blockIdx.x * kBlockColumns;
  clear<int>(sums);
  pipelined_loop<kStages>((a.columns + F::kDepth - 1) / F::kDepth,
                          [&](int tile, int stage) {
                            unsigned char* at = shared + stage * F::kStageBytes;
                            copy_tile<F::Shape, kThreads>(at, a, row0, tile * F::kDepth);
                            copy_tile<F::Shape, kThreads>(at + F::Shape::bytes, b_transposed, column0,
                                                          tile * F::kDepth);
                          },
                          [&](int, int stage) {
                            const unsigned char* at = shared + stage * F::kStageBytes;
                            F::multiply(sums, at, at + F::Shape::bytes);
                          });
}

// ---- tf32: ldmatrix moves 4-byte elements of A too, but can't transpose them, so B is read one by one
// --------

struct Tf32 {
  static constexpr int kDepth = 16;
  using ShapeA = TileShape<kBlockRows, 4 * kDepth>;
  using ShapeB = TileShape<kDepth, 4 * kBlockColumns, 2>;
  static constexpr int kStageBytes = ShapeA::bytes + ShapeB::bytes;

  /// Element (k, column). A warp reads 4 rows by 8 columns, two chunks of each row: rows move on by two.
  DEVICE static unsigned element(const unsigned char* b_tile, int k, int column) {
    const unsigned char* chunk = b_tile + ShapeB::offset(k, column / 4);
    return to_tf32(reinterpret_cast<const float*>(chunk)[column % 4]);
  }

  DEVICE static void multiply(WarpSums<float>& sums, const unsigned char* a_tile,
                              const unsigned char* b_tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kDepth / 8; ++step) {
      unsigned a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        load_a<ShapeA>(a[i], a_tile, warp_row() + i * 16, step * 2);
#pragma unroll
        for (int r = 0; r < 4; ++r) a[i][r] = to_tf32(__uint_as_float(a[i][r]));
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const int k = step * 8 + lane % 4, column = warp_column() + j * 8 + lane / 4;
        const unsigned b[2] = {element(b_tile, k, column), element(b_tile, k + 4, column)};
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) mma_tf32(sums[i][j], a[i], b);
      }
    }
  }
};

template <bool aligned>
DEVICE void product_tf32(WarpSums<float>& sums, const Matrix<float, aligned>& a,
                         const Matrix<float, aligned>& b, unsigned char* shared) {
  using F = Tf32;
  const int row0 = blockIdx.y * kBlockRows, column0 = blockIdx.x * kBlockColumns;
  clear<float>(sums);
  pipelined_loop<kStages>((a.columns + F::kDepth - 1) / F::kDepth,
                          [&](int tile, int stage) {
                            unsigned char* at = shared + stage * F::kStageBytes;
                            copy_tile<F::ShapeA, kThreads>(at, a, row0, tile * F::kDepth);
                            copy_tile<F::ShapeB, kThreads>(at + F::ShapeA::bytes, b, tile * F::kDepth,
                                                           column0);
                          },
                          [&](int, int stage) {
                            const unsigned char* at = shared + stage * F::kStageBytes;
                            F::multiply(sums, at, at + F::ShapeA::bytes);
                          });
}

/// Write the block's sums as T, two neighbours at a time where rows are aligned.
template <class T, bool aligned>
DEVICE void store(const WarpSums<float>& sums, T* y, int rows, int columns) {
  const int row0 = blockIdx.y * kBlockRows + warp_row(), column0 = blockIdx.x * kBlockColumns + warp_column();
  for_each_pair<float>(sums, row0, column0, [&](int row, int column, float first, float second) {
    if (row >= rows || column >= columns) return;
    T* at = y + static_cast<size_t>(row) * columns + column;
    if constexpr (aligned && sizeof(T) == 2) {
      *reinterpret_cast<unsigned*>(at) = pack_pair<T>(first, second);
    } else if constexpr (aligned) {
      *reinterpret_cast<float2*>(at) = make_float2(first, second);
    } else {
      at[0] = from_float<T>(first);
      if (column + 1 < columns) at[1] = from_float<T>(second);
    }
  });
}

}  // namespace gemm
