// Kernels that a GPU would hang in or leave undefined, for the exact words of the messages.
// The tests name the lines: keep them where they are.
#include "../../csrc/cuda/common.cuh"

extern "C" __global__ void barrier_in_branch(float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void barrier_after_exit(float* out, int rows) {
  if (blockIdx.x * blockDim.x + threadIdx.x >= rows) return;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void barrier_against_shuffle(float* out) {
  if (threadIdx.x < 8) __syncthreads();
  out[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, 1.0f, 0);
}

extern "C" __global__ void dead_lane(float* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
}

extern "C" __global__ void outside_own_mask(float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000FFFFu, 1.0f, 0);
}

extern "C" __global__ void reads_outside_mask(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0x0000FFFFu, 1.0f, 16);
}

extern "C" __global__ void different_masks(float* out) {
  const unsigned mask = threadIdx.x < 4 ? 0x0000000Fu : 0xFFFFFFFFu;
  __syncwarp(mask);
  out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void different_operations(float* out) {
  if (threadIdx.x % 32 == 3) __syncwarp();
  else out[threadIdx.x] = __ballot_sync(0xFFFFFFFFu, 1);
}

extern "C" __global__ void never_arrives(float* out) {
  if (threadIdx.x == 0) return;
  if (threadIdx.x == 1) out[0] = __shfl_sync(0x00000006u, 1.0f, 1);
  else if (threadIdx.x == 2) out[1] = __shfl_sync(0x0000000Cu, 1.0f, 2);
  else if (threadIdx.x == 3) out[2] = __shfl_sync(0x0000000Au, 1.0f, 3);
}

extern "C" __global__ void misaligned_ldmatrix(float* out) {
  __shared__ uint4 rows[33];
  unsigned r[4];
  load_tiles(r, reinterpret_cast<char*>(&rows[threadIdx.x]) + (threadIdx.x == 5 ? 2 : 0));
  out[threadIdx.x] = r[0];
}

extern "C" __global__ void misaligned_copy(const float* x, float* out) {
  __shared__ float4 row[2];
  copy_async_16(&row[0], x + 1, true);
  out[0] = row[0].x;
}

extern "C" __global__ void traps(float* out) {
  if (threadIdx.x == 33 && blockIdx.y == 1) __trap();
  out[threadIdx.x] = 1.0f;
}
