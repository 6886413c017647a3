// Matrix products in f32 on the FMA units: register tiles of 8 x 8 fed by 128-bit loads from a cp.async
// pipeline.
//
// An FMA needs two operands: from shared memory that is 8 bytes for 2 flops, where an SM loads 128 bytes per
// clock and makes 256 flops. A thread with an 8 x 8 tile in registers loads 16 numbers for 64 FMAs, and is no
// longer bound by shared memory. 64 sums, 16 numbers of A, 8 of B: two blocks of 256 threads fit an SM.
#pragma once

#include "tile_copy.cuh"

namespace fma_gemm {

constexpr int kBlockRows = 128, kBlockColumns = 128, kDepth = 16, kThreads = 256, kStages = 3;
constexpr int kThreadRows = 8, kThreadColumns = 8;
using ShapeA = TileShape<kBlockRows, 4 * kDepth>;
using ShapeB = TileShape<kDepth, 4 * kBlockColumns>;
constexpr int kStageBytes = ShapeA::bytes + ShapeB::bytes;

using Sums = float[kThreadRows][kThreadColumns];

/// Row i of a thread's tile, and its column j: 16 threads side by side, two groups of 4 columns each.
DEVICE int thread_row(int i) { return i * 16 + threadIdx.x / 16; }
DEVICE int thread_column(int j) { return j / 4 * 64 + threadIdx.x % 16 * 4 + j % 4; }

DEVICE void multiply(Sums& sums, const unsigned char* a_tile, const unsigned char* b_tile) {
#pragma unroll 1  // unrolled, the next loads move up and spill; sixteen warps hide the latency as well
  for (int pair = 0; pair < kDepth / 2; ++pair) {
    float2 a[kThreadRows];  // two steps of K at once: four would cost the registers of the second block
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
      a[i] = reinterpret_cast<const float2*>(a_tile + ShapeA::offset(thread_row(i), pair / 2))[pair % 2];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      float4 b[2];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        b[j] = *reinterpret_cast<const float4*>(b_tile +
                                                ShapeB::offset(pair * 2 + step, j * 16 + threadIdx.x % 16));
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float left = step == 0 ? a[i].x : a[i].y;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          sums[i][4 * j + 0] += left * b[j].x;
          sums[i][4 * j + 1] += left * b[j].y;
          sums[i][4 * j + 2] += left * b[j].z;
          sums[i][4 * j + 3] += left * b[j].w;
        }
      }
    }
  }
}

/// The block's 128 x 128 of a b in `sums`; `shared` has kStages * kStageBytes bytes.
template <bool aligned, class B = Matrix<float, aligned>>
DEVICE void accumulate(Sums& sums, const Matrix<float, aligned>& a, const B& b, unsigned char* shared) {
  const int row0 = blockIdx.y * kBlockRows, column0 = blockIdx.x * kBlockColumns;
  pipelined_loop<kStages>((a.columns + kDepth - 1) / kDepth,
                          [&](int tile, int stage) {
                            unsigned char* at = shared + stage * kStageBytes;
                            copy_tile<ShapeA, kThreads>(at, a, row0, tile * kDepth);
                            copy_tile<ShapeB, kThreads>(at + ShapeA::bytes, b, tile * kDepth, column0);
                          },
                          [&](int, int stage) {
                            const unsigned char* at = shared + stage * kStageBytes;
                            multiply(sums, at, at + ShapeA::bytes);
                          });
}

/// Four neighbours of a row of y, in one access where rows are aligned.
template <bool aligned>
DEVICE void store_four(float* y, int rows, int columns, int row, int column, const float (&values)[4]) {
  if (row >= rows || column >= columns) return;
  float* at = y + static_cast<size_t>(row) * columns + column;
  if constexpr (aligned) {
    *reinterpret_cast<float4*>(at) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (column + i < columns) at[i] = values[i];
  }
}

/// y = a b, the block's part of it.
template <bool aligned>
DEVICE void product(const Matrix<float, aligned>& a, const Matrix<float, aligned>& b, float* y,
                    unsigned char* shared) {
  Sums sums = {};
  accumulate<aligned>(sums, a, b, shared);
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
    for (int j = 0; j < kThreadColumns; j += 4)
      store_four<aligned>(y, a.rows, b.columns, blockIdx.y * kBlockRows + thread_row(i),
                          blockIdx.x * kBlockColumns + thread_column(j),
                          {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]});
}

}  // namespace fma_gemm
