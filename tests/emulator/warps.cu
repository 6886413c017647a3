// Shuffles, votes, reductions, matches, cooperative groups: one result per lane and operation.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern "C" __global__ void shuffles(const int* x, int* out, int width) {
  const int lane = threadIdx.x;
  int* mine = out + 4 * lane;
  mine[0] = __shfl_sync(0xFFFFFFFFu, x[lane], lane + 3, width);
  mine[1] = __shfl_up_sync(0xFFFFFFFFu, x[lane], 2, width);
  mine[2] = __shfl_down_sync(0xFFFFFFFFu, x[lane], 5, width);
  mine[3] = __shfl_xor_sync(0xFFFFFFFFu, x[lane], 6, width);
}

extern "C" __global__ void shuffle_types(const double* x, double* out) {
  const double value = __shfl_xor_sync(0xFFFFFFFFu, x[threadIdx.x], 1);
  const half small = __shfl_xor_sync(0xFFFFFFFFu, __float2half(float(x[threadIdx.x])), 1);
  out[2 * threadIdx.x] = value, out[2 * threadIdx.x + 1] = __half2float(small);
}

// Each half of the warp exchanges within itself, at the same place in the code.
extern "C" __global__ void half_masks(const int* x, int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  out[threadIdx.x] = __reduce_add_sync(mask, x[threadIdx.x]);
}

extern "C" __global__ void votes(const int* x, unsigned* out) {
  unsigned* mine = out + 6 * threadIdx.x;
  const int value = x[threadIdx.x];
  int all = 0;
  mine[0] = __ballot_sync(0xFFFFFFFFu, value > 0);
  mine[1] = __any_sync(0xFFFFFFFFu, value > 5);
  mine[2] = __all_sync(0xFFFFFFFFu, value > -100);
  mine[3] = __match_any_sync(0xFFFFFFFFu, value);
  mine[4] = __match_all_sync(0xFFFFFFFFu, value / 100, &all) & (all ? ~0u : 0u);
  mine[5] = __match_all_sync(0xFFFFFFFFu, value, &all) + all;
}

extern "C" __global__ void reductions(const int* x, int* out) {
  int* mine = out + 8 * threadIdx.x;
  const int value = x[threadIdx.x];
  mine[0] = __reduce_add_sync(0xFFFFFFFFu, value);
  mine[1] = __reduce_min_sync(0xFFFFFFFFu, value);
  mine[2] = __reduce_max_sync(0xFFFFFFFFu, value);
  mine[3] = __reduce_and_sync(0xFFFFFFFFu, (unsigned)value);
  mine[4] = __reduce_or_sync(0xFFFFFFFFu, (unsigned)value);
  mine[5] = __reduce_xor_sync(0xFFFFFFFFu, (unsigned)value);
  mine[6] = __reduce_min_sync(0xFFFFFFFFu, (unsigned)value);
  mine[7] = __reduce_max_sync(0xFFFFFFFFu, (unsigned)value);
}

// The last warp may have fewer than 32 threads: a full mask then means the lanes that exist.
extern "C" __global__ void partial_warp(const int* x, int* out) {
  out[threadIdx.x] =
      __reduce_add_sync(0xFFFFFFFFu, x[threadIdx.x]) + 1000 * __popc(__ballot_sync(0xFFFFFFFFu, 1));
}

extern "C" __global__ void tiles(const float* x, float* out) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  float* mine = out + 6 * block.thread_rank();
  const float value = x[block.thread_rank()];
  mine[0] = cg::reduce(tile, value, cg::plus<float>());
  mine[1] = cg::reduce(tile, value, cg::greater<float>());
  mine[2] = tile.shfl(value, 2);
  mine[3] = tile.shfl_down(value, 1) + 100.0f * tile.shfl_up(value, 1);
  mine[4] = tile.ballot(value > 0.0f);
  mine[5] = tile.thread_rank() + 100 * tile.meta_group_rank();
  block.sync();
}

// Lane 0 writes, the warp synchronises, all read.
extern "C" __global__ void warp_barrier(float* out) {
  __shared__ float value[4];
  if (threadIdx.x % 32 == 0) value[threadIdx.x / 32] = 1.0f + threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = value[threadIdx.x / 32];
}
