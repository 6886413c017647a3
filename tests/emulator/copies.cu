// cp.async: what is in shared memory before and after each wait.
#include <cuda_pipeline.h>

#include "../../csrc/cuda/common.cuh"

// Two groups of copies; out: before any wait, after the first group, after both (the second one is
// zero-filled).
extern "C" __global__ void two_groups(const float4* x, float4* out) {
  __shared__ float4 buffer[2][32];
  const int t = threadIdx.x;
  float4* mine = out + 5 * t;
  buffer[0][t] = make_float4(7.0f, 7.0f, 7.0f, 7.0f);
  copy_async_16(&buffer[0][t], &x[t], true);
  commit_copies();
  copy_async_16(&buffer[1][t], &x[32 + t], t < 16);
  commit_copies();
  mine[0] = buffer[0][t];
  wait_copies<1>();
  mine[1] = buffer[0][t], mine[2] = buffer[1][t];
  wait_copies<0>();
  mine[3] = buffer[0][t], mine[4] = buffer[1][t];
}

extern "C" __global__ void pipeline_functions(const float* x, float* out) {
  __shared__ float buffer[32];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&buffer[t], &x[t], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[t] = buffer[31 - t];
}
