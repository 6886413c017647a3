// cooperative_groups: the thread block, tiles of 1 to 32 threads, and reduce over a tile.
// Grids, clusters and coalesced groups aren't here: blocks run one after another.
#pragma once

#include "warp.h"

namespace cooperative_groups {

struct thread_block {
  void sync(FlashperfSite where = FlashperfSite::here()) const { __syncthreads(where); }
  unsigned thread_rank() const { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const { return size(); }
  dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
};

inline thread_block this_thread_block() { return {}; }

template <unsigned Size, class Parent = thread_block>
class thread_block_tile {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                "a tile has 1, 2, 4, 8, 16 or 32 threads");
  static constexpr unsigned kLanes = Size == 32 ? ~0u : (1u << Size) - 1u;
  static unsigned first_lane() { return flashperf::emulator::lane_index() & ~(Size - 1); }
  static unsigned mask() { return kLanes << first_lane(); }

 public:
  static unsigned thread_rank() { return flashperf::emulator::lane_index() & (Size - 1); }
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned meta_group_rank() { return thread_block().thread_rank() / Size; }
  static unsigned meta_group_size() { return (thread_block().size() + Size - 1) / Size; }

  void sync(FlashperfSite where = FlashperfSite::here()) const { __syncwarp(mask(), where); }
  template <class T>
  T shfl(T value, unsigned rank, FlashperfSite where = FlashperfSite::here()) const {
    return __shfl_sync(mask(), value, rank, Size, where);
  }
  template <class T>
  T shfl_xor(T value, unsigned lane_mask, FlashperfSite where = FlashperfSite::here()) const {
    return __shfl_xor_sync(mask(), value, lane_mask, Size, where);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, FlashperfSite where = FlashperfSite::here()) const {
    return __shfl_down_sync(mask(), value, delta, Size, where);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, FlashperfSite where = FlashperfSite::here()) const {
    return __shfl_up_sync(mask(), value, delta, Size, where);
  }
  unsigned ballot(int predicate, FlashperfSite where = FlashperfSite::here()) const {
    return __ballot_sync(mask(), predicate, where) >> first_lane() & kLanes;
  }
  int any(int predicate, FlashperfSite where = FlashperfSite::here()) const {
    return __any_sync(mask(), predicate, where);
  }
  int all(int predicate, FlashperfSite where = FlashperfSite::here()) const {
    return __all_sync(mask(), predicate, where);
  }
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

template <class Group>
void sync(const Group& group, FlashperfSite where = FlashperfSite::here()) {
  group.sync(where);
}

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return a < b ? a : b; }
};

/// The reduction over the tile, in every thread of it.
template <unsigned Size, class Parent, class T, class Operation>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation operation,
         FlashperfSite where = FlashperfSite::here()) {
  for (unsigned distance = Size / 2; distance; distance /= 2)
    value = operation(value, tile.shfl_xor(value, distance, where));
  return value;
}

}  // namespace cooperative_groups
