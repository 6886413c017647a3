// tiling: one product y = x w in f32, from no reuse to reuse in registers.
//
// Every element of x and w is needed n and m times. What decides the speed is where it is read from again:
// naive reads it from L1 and L2, a shared tile of T x T reads device memory T times less, a register tile of
// 8 x 8 reads shared memory 8 times less than that, and a cp.async pipeline fetches the next tile during the
// work on this one. Bad layouts cost as much as bad tiles: uncoalesced lets the lanes of a warp read
// different lines, bank_conflicts lets them read one bank.
//   x[m,k] w[k,n] -> y[m,n], row-major, any sizes unless it says otherwise.
#include "gemm_ffma.cuh"

namespace {

// ---- plain: one element per thread, straight from global memory
// ----------------------------------------------

DEVICE void dot_product(const float* x, const float* w, float* y, int row, int column, int m, int k, int n) {
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i)
    sum += x[static_cast<size_t>(row) * k + i] * w[static_cast<size_t>(i) * n + column];
  y[static_cast<size_t>(row) * n + column] = sum;
}

// ---- shared tiles: T x T threads, one element each
// -----------------------------------------------------------

/// `pad` 1 puts the rows of x's tile into different banks. With `conflicts` x's tile is stored transposed
/// without a pad, so that the lanes of a warp write to one bank, one after another.
template <int T, bool conflicts>
DEVICE void shared_tiles(const float* x, const float* w, float* y, int m, int k, int n) {
  constexpr int pad = conflicts ? 0 : 1;
  __shared__ float x_tile[T][T + pad], w_tile[T][T + pad];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, column = blockIdx.x * T + tx;
  float sum = 0.0f;
  for (int k0 = 0; k0 < k; k0 += T) {
    const float left = row < m && k0 + tx < k ? x[static_cast<size_t>(row) * k + k0 + tx] : 0.0f;
    if (conflicts) x_tile[tx][ty] = left;
    else x_tile[ty][tx] = left;
    w_tile[ty][tx] = k0 + ty < k && column < n ? w[static_cast<size_t>(k0 + ty) * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T; ++i) sum += (conflicts ? x_tile[i][ty] : x_tile[ty][i]) * w_tile[i][tx];
    __syncthreads();
  }
  if (row < m && column < n) y[static_cast<size_t>(row) * n + column] = sum;
}

// ---- register tiles: R x R elements per thread, 16 x 16 threads
// ----------------------------------------------

/// Loads one tile of 16 columns of K, waits, works, waits: no overlap. The tile of x is stored by columns, so
/// that a thread reads R neighbours of a column as it does of w's row.
template <int R>
DEVICE void register_tiles(const float* x, const float* w, float* y, int m, int k, int n) {
  constexpr int kTile = 16 * R, kDepth = 16, kPad = 4;
  __shared__ __align__(16) float x_tile[kDepth][kTile + kPad], w_tile[kDepth][kTile + kPad];
  const int t = threadIdx.x, row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  const int row = t / 16 * R, column = t % 16 * R;  // of the thread's own tile
  float sums[R][R] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
#pragma unroll 4
    for (int i = t; i < kTile * kDepth; i += 256) {
      const int r = row0 + i / kDepth, c = k0 + i % kDepth;
      x_tile[i % kDepth][i / kDepth] = r < m && c < k ? x[static_cast<size_t>(r) * k + c] : 0.0f;
      const int wr = k0 + i / kTile, wc = column0 + i % kTile;
      w_tile[i / kTile][i % kTile] = wr < k && wc < n ? w[static_cast<size_t>(wr) * n + wc] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      float4 left[R / 4], right[R / 4];
#pragma unroll
      for (int j = 0; j < R / 4; ++j) {
        left[j] = *reinterpret_cast<const float4*>(&x_tile[i][row + 4 * j]);
        right[j] = *reinterpret_cast<const float4*>(&w_tile[i][column + 4 * j]);
      }
#pragma unroll
      for (int a = 0; a < R; ++a)
#pragma unroll
        for (int b = 0; b < R; ++b)
          sums[a][b] += reinterpret_cast<const float*>(left)[a] * reinterpret_cast<const float*>(right)[b];
    }
    __syncthreads();
  }
#pragma unroll
  for (int a = 0; a < R; ++a)
#pragma unroll
    for (int b = 0; b < R; ++b)
      if (row0 + row + a < m && column0 + column + b < n)
        y[static_cast<size_t>(row0 + row + a) * n + column0 + column + b] = sums[a][b];
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define PRODUCT(name, bounds, call)                                                                      \
  extern "C" __global__ void __launch_bounds__ bounds name(const float* __restrict__ x,                  \
                                                           const float* __restrict__ w,                  \
                                                           float* __restrict__ y, int m, int k, int n) { \
    call;                                                                                                \
  }

// Neighbouring lanes take neighbouring columns: one line of w per warp and step, and one element of x.
PRODUCT(naive, (256),
        dot_product(x, w, y, blockIdx.y* blockDim.y + threadIdx.y, blockIdx.x* blockDim.x + threadIdx.x, m, k,
                    n))
// Neighbouring lanes take neighbouring rows: 32 lines of x per warp and step, and 32 partly written lines of
// y.
PRODUCT(uncoalesced, (256),
        dot_product(x, w, y, blockIdx.x* blockDim.x + threadIdx.x, blockIdx.y* blockDim.y + threadIdx.y, m, k,
                    n))
PRODUCT(tiled_8, (64), (shared_tiles<8, false>(x, w, y, m, k, n)))
PRODUCT(tiled_16, (256), (shared_tiles<16, false>(x, w, y, m, k, n)))
PRODUCT(tiled_32, (1024), (shared_tiles<32, false>(x, w, y, m, k, n)))
PRODUCT(bank_conflicts, (1024), (shared_tiles<32, true>(x, w, y, m, k, n)))
PRODUCT(register_64, (256), register_tiles<4>(x, w, y, m, k, n))
PRODUCT(register_128, (256, 2), register_tiles<8>(x, w, y, m, k, n))

#define PIPELINED(name, aligned)                                                                          \
  extern "C" __global__ void __launch_bounds__(fma_gemm::kThreads, 2)                                     \
      name(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int m, int k, \
           int n) {                                                                                       \
    extern __shared__ __align__(128) unsigned char shared[];                                              \
    fma_gemm::product<aligned>({x, m, k}, {w, k, n}, y, shared);                                          \
  }

PIPELINED(pipelined, true)
PIPELINED(pipelined_any_size, false)
