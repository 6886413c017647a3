// Kernels whose traffic is known by hand: tests/test_traffic_toys.py says what each asks of memory.
#include <mma.h>

#include "../../csrc/cuda/common.cuh"

#define TOY(name) extern "C" __global__ void name(const float* x, float* y, int n)

TOY(coalesced) { y[threadIdx.x] = x[threadIdx.x]; }
TOY(strided) { y[threadIdx.x] = x[threadIdx.x * n]; }
TOY(offset) { y[threadIdx.x] = x[threadIdx.x + n]; }
TOY(broadcast) { y[threadIdx.x] = x[n]; }
TOY(backwards) { y[threadIdx.x] = x[31 - threadIdx.x]; }
TOY(guarded) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
TOY(wide) { reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x]; }
TOY(wide_sum) {
  const float4 a = reinterpret_cast<const float4*>(x)[threadIdx.x];
  y[threadIdx.x] = a.x + a.y + a.z + a.w;
}
TOY(halves) { reinterpret_cast<__half*>(y)[threadIdx.x] = reinterpret_cast<const __half*>(x)[threadIdx.x]; }
TOY(nothing_read) { y[threadIdx.x] = static_cast<float>(threadIdx.x + blockIdx.x * blockDim.x); }
/// Lane i reads i elements: 31 requests, the first of 31 lanes, the last of one.
TOY(triangle) {
  float sum = 0.0f;
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) sum += x[i];
  y[threadIdx.x] = sum;
}
/// The two halves of a warp read before they meet, the halves in different branches.
TOY(branches) {
  float value;
  if (threadIdx.x < 16) value = x[threadIdx.x];
  else value = 2.0f * x[threadIdx.x + 16];
  y[threadIdx.x] = __shfl_xor_sync(kAllLanes, value, 16);
}
/// Odd lanes read twice, the others once; after they met, all lanes read once.
TOY(uneven) {
  float sum = 0.0f;
  for (int round = 0; round < n; ++round) {
    const int times = n - 1 + (round == 0 ? static_cast<int>(threadIdx.x) % 2 : 0);
    for (int i = 0; i < times; ++i) sum += x[threadIdx.x + 32 * i];
    __syncwarp();
  }
  y[threadIdx.x] = sum;
}
TOY(same_atomic) { atomicAdd(y, x[threadIdx.x]); }

/// A tile of 32 x 32, written by rows and read by columns; `pad` puts the rows of a column into other banks.
template <int pad>
DEVICE void transpose(const float* x, float* y) {
  __shared__ float tile[32][32 + pad];
  for (int row = 0; row < 32; ++row) tile[row][threadIdx.x] = x[row * 32 + threadIdx.x];
  __syncthreads();
  for (int row = 0; row < 32; ++row) y[row * 32 + threadIdx.x] = tile[threadIdx.x][row];
}
TOY(transpose_conflicting) { transpose<0>(x, y); }
TOY(transpose_padded) { transpose<1>(x, y); }

TOY(shared_strided) {
  __shared__ float tile[32 * 32];
  tile[threadIdx.x * n] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = tile[0];
}
TOY(shared_wide) {
  __shared__ float4 tile[32];
  tile[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
  __syncwarp();
  reinterpret_cast<float4*>(y)[threadIdx.x] = tile[threadIdx.x ^ n];
}

/// Rows of 128 bytes by cp.async, read by ldmatrix: eight rows' chunks lie in the same banks unless moved on.
template <bool swizzled>
DEVICE void tiles(const float* x, float* y) {
  __shared__ __align__(128) unsigned char tile[8 * 128];
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  for (int r = row; r < 8; r += 4)
    copy_async_16(tile + r * 128 + (swizzled ? chunk ^ r : chunk) * 16, x + r * 32 + chunk * 4, true);
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  unsigned part[2];
  const int r = threadIdx.x % 8, c = threadIdx.x / 8 % 2;
  load_tiles(part, tile + r * 128 + (swizzled ? c ^ r : c) * 16);
  y[threadIdx.x] = __uint_as_float(part[0] + part[1]);
}
TOY(tiles_conflicting) { tiles<false>(x, y); }
TOY(tiles_swizzled) { tiles<true>(x, y); }
TOY(copies_of_4) {
  __shared__ float tile[32];
  copy_async_4(tile + threadIdx.x, x + threadIdx.x, static_cast<int>(threadIdx.x) < n);
  commit_copies();
  wait_copies<0>();
  y[threadIdx.x] = tile[threadIdx.x];
}

TOY(wmma_tile) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(a, reinterpret_cast<const __half*>(x), n);
  wmma::load_matrix_sync(b, reinterpret_cast<const __half*>(x), n);
  wmma::mma_sync(sum, a, b, sum);
  wmma::store_matrix_sync(y, sum, 16, wmma::mem_row_major);
}

/// Every block walks all n elements: they come from L1 after the first round, if they fit.
TOY(rounds) {
  float sum = 0.0f;
  for (int round = 0; round < 2; ++round) {
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
    __syncthreads();
  }
  y[blockIdx.x * 32 + threadIdx.x] = sum;
}
