// Attention by tiles on Tensor Cores: 64 queries of one head per block, 64 keys at a time, the running
// softmax and the sums in registers. 16-bit types, e up to 128; attention_rows.cuh has the same for any type.
#pragma once

#include "attention_rows.cuh"
#include "tile_copy.cuh"

namespace {

constexpr int kQueries = 64, kKeys = 64, kThreads = 128;  // per block and tile: a warp has 16 queries
constexpr float kLog2E = 1.44269504f;

/// One warp's 16 queries: their fragments, the running softmax of the two rows of each lane, the sums of
/// values.
template <class T, int E>
struct Walk {
  using Tile = TileShape<kKeys, 2 * E>;
  static constexpr int kKeyTiles = kKeys / 8, kValueTiles = E / 8;
  unsigned query[E / 16][4];
  float peak[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f}, sums[kValueTiles][4] = {};

  DEVICE void load_queries(const unsigned char* tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < E / 16; ++step)
      load_tiles(query[step], tile + Tile::offset(threadIdx.x / 32 * 16 + lane % 16, step * 2 + lane / 16));
  }

  /// The 16 x 64 scores: a key is a row of its tile, so its elements lie together as the product wants them.
  DEVICE void multiply_keys(float (&scores)[kKeyTiles][4], const unsigned char* keys) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < E / 16; ++step) {
#pragma unroll
      for (int j = 0; j < kKeyTiles / 2; ++j) {
        unsigned b[4];
        load_tiles(b, keys + Tile::offset(j * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
        mma_16bit<T>(scores[2 * j], query[step], reinterpret_cast<const unsigned (&)[2]>(b[0]));
        mma_16bit<T>(scores[2 * j + 1], query[step], reinterpret_cast<const unsigned (&)[2]>(b[2]));
      }
    }
  }

  /// Scores (in units of log2) become weights; what was summed before is rescaled to the new maximum.
  DEVICE void weigh(float (&scores)[kKeyTiles][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // the lane's rows g and g + 8
      float higher = peak[half];
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j)
        higher = fmaxf(higher, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
      higher = fmaxf(higher, __shfl_xor_sync(kAllLanes, higher, 1));  // the four lanes of a row
      higher = fmaxf(higher, __shfl_xor_sync(kAllLanes, higher, 2));
      const float origin = higher == -INFINITY ? 0.0f : higher;  // nothing seen yet: all weights are zero
      const float correction = exp2f(peak[half] - origin);
      peak[half] = higher;
      total[half] *= correction;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[j][i] = exp2f(scores[j][i] - origin);
          total[half] += scores[j][i];
        }
      }
#pragma unroll
      for (int j = 0; j < kValueTiles; ++j)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) sums[j][i] *= correction;
    }
  }

  /// The weights lie in registers as the left operand of the next product wants them; values are turned.
  DEVICE void multiply_values(const float (&weights)[kKeyTiles][4], const unsigned char* values) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const float (&left)[4] = weights[2 * step], (&right)[4] = weights[2 * step + 1];
      const unsigned a[4] = {pack_pair<T>(left[0], left[1]), pack_pair<T>(left[2], left[3]),
                             pack_pair<T>(right[0], right[1]), pack_pair<T>(right[2], right[3])};
#pragma unroll
      for (int j = 0; j < kValueTiles / 2; ++j) {
        unsigned b[4];
        load_tiles_transposed(b, values + Tile::offset(step * 16 + lane % 16, j * 2 + lane / 16));
        mma_16bit<T>(sums[2 * j], a, reinterpret_cast<const unsigned (&)[2]>(b[0]));
        mma_16bit<T>(sums[2 * j + 1], a, reinterpret_cast<const unsigned (&)[2]>(b[2]));
      }
    }
  }

  DEVICE void store(const Attention<T>& a, T* y, int row0, int head) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 1);
      total[half] += __shfl_xor_sync(kAllLanes, total[half], 2);
      const float factor = total[half] > 0.0f ? 1.0f / total[half] : 0.0f;
      const int row = row0 + threadIdx.x / 32 * 16 + lane / 4 + half * 8;
      if (row >= a.m) continue;
#pragma unroll
      for (int j = 0; j < kValueTiles; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = j * 8 + lane % 4 * 2 + i;
          if (column < a.e) y[a.query_at(row, head) + column] = from_float<T>(sums[j][2 * half + i] * factor);
        }
    }
  }
};

/// 64 queries of one head per block. Queries of several slots are walked slot by slot, each run of equal
/// slots over its own keys; a warp without queries in the run, or whose queries don't see the tile, only
/// keeps the barriers.
template <class T, int E, bool aligned>
DEVICE void online_tiles(const Attention<T>& a, T* y, unsigned char* shared) {
  using Tile = typename Walk<T, E>::Tile;
  __shared__ int slots[kQueries], first[kQueries], end[kQueries];
  const int row0 = blockIdx.x * kQueries, head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < kQueries) {
    const auto range = a.keys_of(row0 + threadIdx.x);
    slots[threadIdx.x] = range.slot, first[threadIdx.x] = range.first, end[threadIdx.x] = range.end;
  }
  const Matrix<T, aligned> queries{a.q + static_cast<size_t>(head) * a.e, a.m, a.e, a.heads * a.e};
  copy_tile<Tile, kThreads>(shared, queries, row0, 0);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  Walk<T, E> walk;
  walk.load_queries(shared);
  __syncthreads();  // the tile of queries becomes a tile of keys

  for (int run = 0, run_end; run < kQueries; run = run_end) {
    int from = a.t, to = 0;
    for (run_end = run; run_end < kQueries && slots[run_end] == slots[run]; ++run_end)
      from = min(from, first[run_end]), to = max(to, end[run_end]);
    if (slots[run] < 0 || from >= to) continue;
    from = from / kKeys * kKeys;
    const size_t base = a.keys_at(slots[run], head);
    const Matrix<T, aligned> keys{a.k + base, to, a.e}, values{a.v + base, to, a.e};
    int warp_from = a.t, warp_to = 0;
    for (int i = max(run, warp * 16); i < min(run_end, warp * 16 + 16); ++i)
      warp_from = min(warp_from, first[i]), warp_to = max(warp_to, end[i]);
    pipelined_loop<2>((to - from + kKeys - 1) / kKeys,
                      [&](int tile, int stage) {
                        unsigned char* at = shared + stage * 2 * Tile::bytes;
                        copy_tile<Tile, kThreads>(at, keys, from + tile * kKeys, 0);
                        copy_tile<Tile, kThreads>(at + Tile::bytes, values, from + tile * kKeys, 0);
                      },
                      [&](int tile, int stage) {
                        const int key0 = from + tile * kKeys;
                        if (key0 >= warp_to || key0 + kKeys <= warp_from) return;
                        const unsigned char* at = shared + stage * 2 * Tile::bytes;
                        float scores[Walk<T, E>::kKeyTiles][4] = {};
                        walk.multiply_keys(scores, at);
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                          const int row = warp * 16 + lane / 4 + i / 2 * 8;
                          const bool in_run = row >= run && row < run_end;
                          const int low = in_run ? first[row] : a.t, high = in_run ? end[row] : 0;
#pragma unroll
                          for (int j = 0; j < Walk<T, E>::kKeyTiles; ++j) {
                            const int key = key0 + j * 8 + lane % 4 * 2 + i % 2;
                            const bool seen = key >= low && key < high;
                            float score = scores[j][i] * a.scale;
                            if (a.mask && seen) score += a.mask[static_cast<size_t>(row0 + row) * a.t + key];
                            scores[j][i] = seen ? score * kLog2E : -INFINITY;
                          }
                        }
                        walk.weigh(scores);
                        walk.multiply_values(scores, at + Tile::bytes);
                      });
    __syncthreads();  // the next run fills the first stage again
  }
  walk.store(a, y, row0, head);
}

}  // namespace
