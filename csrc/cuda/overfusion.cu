// overfusion: a SwiGLU MLP, y = (silu(x gate) * (x up)) down, unfused, fused by the right amount, and by too
// much.
//
// Fusing the activation into the two first products is free: a block computes the same columns of both and
// combines them in registers, and three passes over the hidden activations disappear. Fusing the third
// product as well keeps the hidden row on chip, but every block then needs all of it: rows are the only axis
// left to spread over, each block reads all weights, and a batch of 128 rows fills 8 or 16 of more than 100
// SMs. That is what fully fused MLPs do (tiny-cuda-nn); it pays where the weights are small and rows are
// many.
//   x[m,d] gate[d,f] up[d,f] down[f,d] -> y[m,d], row-major. *_any_size: d or f isn't a multiple of 16 bytes.
#include <mma.h>

#include "gemm_ffma.cuh"
#include "gemm_mma.cuh"

namespace {

DEVICE float silu(float x) { return x / (1.0f + __expf(-x)); }

// ---- plain: the passes between the products
// ------------------------------------------------------------------

/// h = silu(g), or h = g * u: an element per thread.
template <class T>
DEVICE void silu_pass(const T* g, T* h, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) h[i] = from_float<T>(silu(to_float(g[i])));
}

template <class T>
DEVICE void multiply_pass(const T* g, const T* u, T* h, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) h[i] = from_float<T>(to_float(g[i]) * to_float(u[i]));
}

template <class T, bool aligned>
DEVICE void product(const T* x, const T* w, T* y, int m, int k, int n, unsigned char* shared) {
  if constexpr (__is_same(T, float)) {
    fma_gemm::product<aligned>({x, m, k}, {w, k, n}, y, shared);
  } else {
    gemm::WarpSums<float> sums;
    gemm::product<T, aligned>(sums, {x, m, k}, {w, k, n}, shared);
    gemm::store<T, aligned>(sums, y, m, n);
  }
}

// ---- fused by the right amount: both products and the activation
// ---------------------------------------------

/// A block makes 64 columns of h: of gate and of up, in turns so narrow that one thread has both of a column.
template <bool aligned>
DEVICE void gate_up(const float* x, const float* gate, const float* up, float* h, int m, int d, int f,
                    unsigned char* shared) {
  using Both = Interleaved<float, aligned, 64>;
  fma_gemm::Sums sums = {};
  fma_gemm::accumulate<aligned, Both>(sums, {x, m, d}, {{gate, d, f}, {up, d, f}}, shared);
#pragma unroll
  for (int i = 0; i < fma_gemm::kThreadRows; ++i) {
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = silu(sums[i][j]) * sums[i][j + 4];
    fma_gemm::store_four<aligned>(h, m, f, blockIdx.y * fma_gemm::kBlockRows + fma_gemm::thread_row(i),
                                  blockIdx.x * 64 + threadIdx.x % 16 * 4, values);
  }
}

template <bool aligned, class T>
DEVICE void gate_up(const T* x, const T* gate, const T* up, T* h, int m, int d, int f,
                    unsigned char* shared) {
  using Both = Interleaved<T, aligned, gemm::kWarpColumns / 2>;  // a warp's columns: half gate, half up
  gemm::WarpSums<float> sums;
  gemm::product<T, aligned, Both>(sums, {x, m, d}, {{gate, d, f}, {up, d, f}}, shared);
  const int row0 = blockIdx.y * gemm::kBlockRows + gemm::warp_row(), lane = threadIdx.x % 32;
  const int column0 = blockIdx.x * (gemm::kBlockColumns / 2) + gemm::warp_column() / 2;
#pragma unroll
  for (int i = 0; i < gemm::kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < gemm::kColumnTiles / 2; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = row0 + i * 16 + lane / 4 + r / 2 * 8, column = column0 + j * 8 + lane % 4 * 2 + r % 2;
        if (row < m && column < f)
          h[static_cast<size_t>(row) * f + column] =
              from_float<T>(silu(sums[i][j][r]) * sums[i][j + gemm::kColumnTiles / 2][r]);
      }
}

// ---- fused too much: all three products in one block per few rows
// --------------------------------------------

constexpr int kOverThreads = 256;

/// 8 rows per block. `shared` holds them and their hidden activations: 8 (d + f) floats.
DEVICE void mlp_over(const float* x, const float* gate, const float* up, const float* down, float* y, int m,
                     int d, int f, float* shared) {
  constexpr int kRows = 8;
  float *const rows = shared, *const hidden = shared + kRows * d;
  const int row0 = blockIdx.x * kRows;
  for (int i = threadIdx.x; i < kRows * d; i += kOverThreads)
    rows[i] = row0 + i / d < m ? x[static_cast<size_t>(row0) * d + i] : 0.0f;
  __syncthreads();
  for (int column = threadIdx.x; column < f; column += kOverThreads) {
    float g[kRows] = {}, u[kRows] = {};
    for (int k = 0; k < d; ++k) {
      const float wg = gate[static_cast<size_t>(k) * f + column],
                  wu = up[static_cast<size_t>(k) * f + column];
#pragma unroll
      for (int r = 0; r < kRows; ++r) g[r] += rows[r * d + k] * wg, u[r] += rows[r * d + k] * wu;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) hidden[r * f + column] = silu(g[r]) * u[r];
  }
  __syncthreads();
  for (int column = threadIdx.x; column < d; column += kOverThreads) {
    float sums[kRows] = {};
    for (int k = 0; k < f; ++k) {
      const float w = down[static_cast<size_t>(k) * d + column];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] += hidden[r * f + k] * w;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (row0 + r < m) y[static_cast<size_t>(row0 + r) * d + column] = sums[r];
  }
}

/// The same on Tensor Cores: 16 rows per block, a warp per 16 columns; d and f are multiples of 16.
template <class T>
DEVICE void mlp_over(const T* x, const T* gate, const T* up, const T* down, T* y, int m, int d, int f,
                     T* shared) {
  using namespace nvcuda;
  using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
  using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
  using Result = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
  constexpr int kRows = 16;
  __shared__ float results[kOverThreads / 32][kRows * 16];
  T *const rows = shared, *const hidden = shared + kRows * d;
  const int row0 = blockIdx.x * kRows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < kRows * d; i += kOverThreads)
    rows[i] = row0 + i / d < m ? x[static_cast<size_t>(row0) * d + i] : T(0.0f);
  __syncthreads();
  Left a;
  Right b;
  for (int column = warp * 16; column < f; column += kOverThreads / 32 * 16) {
    Result g, u;
    wmma::fill_fragment(g, 0.0f), wmma::fill_fragment(u, 0.0f);
    for (int k = 0; k < d; k += 16) {
      wmma::load_matrix_sync(a, rows + k, d);
      wmma::load_matrix_sync(b, gate + static_cast<size_t>(k) * f + column, f);
      wmma::mma_sync(g, a, b, g);
      wmma::load_matrix_sync(b, up + static_cast<size_t>(k) * f + column, f);
      wmma::mma_sync(u, a, b, u);
    }
    for (int i = 0; i < g.num_elements; ++i) g.x[i] = silu(g.x[i]) * u.x[i];
    wmma::store_matrix_sync(results[warp], g, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < kRows * 16; i += 32)
      hidden[i / 16 * f + column + i % 16] = from_float<T>(results[warp][i]);
    __syncwarp();
  }
  __syncthreads();
  for (int column = warp * 16; column < d; column += kOverThreads / 32 * 16) {
    Result sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < f; k += 16) {
      wmma::load_matrix_sync(a, hidden + k, f);
      wmma::load_matrix_sync(b, down + static_cast<size_t>(k) * d + column, d);
      wmma::mma_sync(sum, a, b, sum);
    }
    wmma::store_matrix_sync(results[warp], sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < kRows * 16; i += 32)
      if (row0 + i / 16 < m)
        y[static_cast<size_t>(row0 + i / 16) * d + column + i % 16] = from_float<T>(results[warp][i]);
    __syncwarp();
  }
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define TILED_KERNELS(type, T, suffix, bounds, aligned)                                                 \
  extern "C" __global__ void __launch_bounds__ bounds product_##type##suffix(                           \
      const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int m, int k, int n) {       \
    extern __shared__ __align__(128) unsigned char shared[];                                            \
    product<T, aligned>(x, w, y, m, k, n, shared);                                                      \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__ bounds gate_up_##type##suffix(                           \
      const T* __restrict__ x, const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ h, \
      int m, int d, int f) {                                                                            \
    extern __shared__ __align__(128) unsigned char shared[];                                            \
    gate_up<aligned>(x, gate, up, h, m, d, f, shared);                                                  \
  }

#define KERNELS(type, T, bounds)                                                                          \
  TILED_KERNELS(type, T, , bounds, true)                                                                  \
  TILED_KERNELS(type, T, _any_size, bounds, false)                                                        \
  extern "C" __global__ void __launch_bounds__(256)                                                       \
      silu_##type(const T* __restrict__ g, T* __restrict__ h, long long n) {                              \
    silu_pass(g, h, n);                                                                                   \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(256)                                                       \
      multiply_##type(const T* __restrict__ g, const T* __restrict__ u, T* __restrict__ h, long long n) { \
    multiply_pass(g, u, h, n);                                                                            \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(kOverThreads)                                              \
      mlp_over_##type(const T* __restrict__ x, const T* __restrict__ gate, const T* __restrict__ up,      \
                      const T* __restrict__ down, T* __restrict__ y, int m, int d, int f) {               \
    extern __shared__ __align__(128) unsigned char shared[];                                              \
    mlp_over(x, gate, up, down, y, m, d, f, reinterpret_cast<T*>(shared));                                \
  }

KERNELS(f32, float, (fma_gemm::kThreads, 2))
KERNELS(f16, __half, (gemm::kThreads))
KERNELS(bf16, __nv_bfloat16, (gemm::kThreads))
