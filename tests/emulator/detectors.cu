// Planted bugs, one per kernel, each of which one detector must find. With planted = 0 the kernel is right:
// y[i] = 2 x[i] for 64 threads (two warps), computed through whatever the bug is about.
#include "../../csrc/cuda/common.cuh"

extern "C" __global__ void global_out_of_bounds(const float* x, float* y, int n, int planted) {
  for (int i = threadIdx.x; i < n + planted; i += blockDim.x) y[i] = 2.0f * x[i];
}

extern "C" __global__ void static_shared_out_of_bounds(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = 2.0f * *(values + threadIdx.x + planted);
}

namespace {
template <int size>
__device__ float through_shared(float value, int planted) {
  __shared__ float values[size];
  values[threadIdx.x] = value;
  __syncthreads();
  return *(values + threadIdx.x + planted);
}
}  // namespace

extern "C" __global__ void template_shared_out_of_bounds(const float* x, float* y, int n, int planted) {
  y[threadIdx.x] = 2.0f * through_shared<64>(x[threadIdx.x], planted);
}

extern "C" __global__ void dynamic_shared_out_of_bounds(const float* x, float* y, int n, int planted) {
  extern __shared__ float dynamic[];
  dynamic[threadIdx.x + planted] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = 2.0f * dynamic[threadIdx.x + planted];
}

// One column too far is another row: inside the array, so that only the type knows.
extern "C" __global__ void row_overrun(const float* x, float* y, int n, int planted) {
  __shared__ float tile[9][8];
  const int row = threadIdx.x / 8, column = threadIdx.x % 8;
  tile[row][column] = x[threadIdx.x];
  if (threadIdx.x < 8) tile[8][threadIdx.x] = 0.0f;
  __syncthreads();
  y[threadIdx.x] = 2.0f * tile[row][column + planted];
}

extern "C" __global__ void misaligned_vector(const float* x, float* y, int n, int planted) {
  const int i = threadIdx.x;
  if (i < n / 4 - planted)
    reinterpret_cast<float4*>(y)[i] = *reinterpret_cast<const float4*>(x + 4 * i + planted);
  if (i < n / 4 - planted)
    for (int j = 0; j < 4; ++j) y[4 * i + j] *= 2.0f;
}

extern "C" __global__ void missing_barrier(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  values[63 - threadIdx.x] = x[63 - threadIdx.x];
  if (!planted) __syncthreads();
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

// The second barrier of a loop: a fast warp overwrites what a slow one still reads.
extern "C" __global__ void missing_loop_barrier(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  float sum = 0.0f;
  for (int round = 0; round < 2; ++round) {
    values[63 - threadIdx.x] = x[63 - threadIdx.x];
    __syncthreads();
    sum += values[threadIdx.x];
    if (!planted) __syncthreads();
  }
  y[threadIdx.x] = sum;
}

extern "C" __global__ void missing_warp_barrier(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  values[threadIdx.x ^ 1] = x[threadIdx.x ^ 1];
  if (!planted) __syncwarp();
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

extern "C" __global__ void missing_wait(const float* x, float* y, int n, int planted) {
  __shared__ __align__(16) float values[64];
  if (threadIdx.x < 16) copy_async_16(&values[4 * threadIdx.x], &x[4 * threadIdx.x], true);
  commit_copies();
  if (!planted) wait_copies<0>();
  __syncthreads();
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

// The next tile is fetched into a buffer that others still read.
extern "C" __global__ void early_copy(const float* x, float* y, int n, int planted) {
  __shared__ __align__(16) float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (planted && threadIdx.x < 16) copy_async_16(&values[4 * threadIdx.x], &x[4 * threadIdx.x], true);
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

extern "C" __global__ void unset_shared(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  if (!planted || threadIdx.x != 5) values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

extern "C" __global__ void divergent_barrier(const float* x, float* y, int n, int planted) {
  __shared__ float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  if (!planted || threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 2.0f * values[threadIdx.x];
}

extern "C" __global__ void wrong_shuffle_mask(const float* x, float* y, int n, int planted) {
  const unsigned mask = planted ? 0x7FFFFFFFu : kAllLanes;
  const float neighbour = __shfl_xor_sync(mask, x[threadIdx.x], 1);
  y[threadIdx.x ^ 1] = 2.0f * neighbour;
}
