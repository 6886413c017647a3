// pinning: ragged rows over persistent blocks, by a static partition or by a queue.
//
// On a GPU nothing is pinned, but the choice is the same as with threads on cores: give each worker its share
// beforehand, which costs nothing and lets the longest share decide the time, or let workers take the next
// row from a queue, which costs an atomic operation per row and ends evenly.
//   row i is x[start[i]] to x[start[i + 1] - 1]; y[i] is the root of the mean of its squares, 0 for an empty
//   row.
#include "queue.cuh"

namespace {

/// A block per row: every thread sums its part, warps by shuffles, the block through shared memory.
DEVICE void root_mean_square(const float* x, const int* start, float* y, int row) {
  __shared__ float partial[8];
  const int first = start[row], end = start[row + 1];
  float sum = 0.0f;
  for (int i = first + threadIdx.x; i < end; i += blockDim.x) sum += x[i] * x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) total += partial[warp];
    y[row] = end > first ? sqrtf(total / (end - first)) : 0.0f;
  }
  __syncthreads();  // partial sums may be overwritten
}

}  // namespace

/// Block b has the rows from b * rows / blocks on, as many as the others.
extern "C" __global__ void __launch_bounds__(256)
    static_partition(const float* __restrict__ x, const int* __restrict__ start, float* __restrict__ y,
                     int rows) {
  const int first = static_cast<int>(static_cast<long long>(blockIdx.x) * rows / gridDim.x);
  const int end = static_cast<int>((static_cast<long long>(blockIdx.x) + 1) * rows / gridDim.x);
  for (int row = first; row < end; ++row) root_mean_square(x, start, y, row);
}

extern "C" __global__ void __launch_bounds__(256)
    work_queue(const float* __restrict__ x, const int* __restrict__ start, float* __restrict__ y, int rows,
               int* queue) {
  Queue* const work = reinterpret_cast<Queue*>(queue);
  for (int row = take_item(work); row < rows; row = take_item(work)) root_mean_square(x, start, y, row);
  leave_queue(work);
}
