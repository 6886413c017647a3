// pipeline_attention: the attention of a step that is handed a mask, and the one whose scores are in memory.
//
// The KV cache has room for t positions and `extent` says how many are in use: it lies in device memory,
// since a captured graph has its grid fixed while the sequence grows. Kernels are launched for t and leave
// early.
//   q[m,heads,e], caches [slots,heads,t,e], slot[m], position[m], mask[m,t], scores[heads,m,t], extent[1]
#include "attention_tiles.cuh"

namespace {

/// Every score of the keys in use; with `position`, minus infinity where the window doesn't let a query see.
template <class T>
DEVICE void write_window_scores(const Attention<T>& a, float* scores) {
  __shared__ float queries[kRowWarps][kMaxHeadSize];
  const int warp = threadIdx.x / 32, row = blockIdx.x * kRowWarps + warp, head = blockIdx.y;
  if (row >= a.m) return;  // the whole warp
  load_query(a, queries[warp], row, head);
  const auto range = a.keys_of(row);
  const T* keys = a.k + a.keys_at(max(range.slot, 0), head);
  float* out = scores + (static_cast<size_t>(head) * a.m + row) * a.t;
  const int length = a.length();
  for (int key = threadIdx.x % 32; key < length; key += 32) {
    const bool seen = key >= range.first && key < range.end;
    out[key] = seen ? score_of(a, queries[warp], row, keys, key) : -INFINITY;
  }
}

/// The combination of a row's first `length` scores into peak or total, a warp per row.
template <class Operation>
DEVICE void reduce_scores(const float* scores, float* result, int rows, int t, int length, float start,
                          Operation operation) {
  const int row = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float value = start;
  for (int i = lane; i < length; i += 32) value = operation(value, scores[static_cast<size_t>(row) * t + i]);
#pragma unroll
  for (int distance = 16; distance; distance /= 2)
    value = operation(value, __shfl_xor_sync(kAllLanes, value, distance));
  if (lane == 0) result[row] = value;
}

/// scores[row,key] = f(score, of_row[row]); a row per blockIdx.x.
template <class Function>
DEVICE void map_scores(float* scores, const float* of_row, int t, int length, Function f) {
  const int key = blockIdx.y * blockDim.x + threadIdx.x;
  if (key >= length) return;
  float* at = scores + static_cast<size_t>(blockIdx.x) * t + key;
  *at = f(*at, of_row[blockIdx.x]);
}

DEVICE int in_use(const int* extent, int t) { return min(*extent, t); }

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define SIZES int m, int heads, int e, int slots, int t
#define MASKED_ARGUMENTS(T)                                                                                \
  const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const int* __restrict__ slot, \
      const float* __restrict__ mask, const int* __restrict__ extent, SIZES, float scale
#define MASKED {q, k, v, slot, nullptr, mask, m, heads, e, slots, t, 0, scale, extent}

#define ROW_KERNELS(type, T)                                                                                \
  extern "C" __global__ void __launch_bounds__(32 * kRowWarps) scores_##type(                               \
      const T* q, const T* k, const int* slot, const int* extent, float* scores, SIZES, float scale) {      \
    write_scores<T>({q, k, nullptr, slot, nullptr, nullptr, m, heads, e, slots, t, 0, scale, extent},       \
                    scores);                                                                                \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(32 * kRowWarps)                                              \
      scores_window_##type(const T* q, const T* k, const int* slot, const int* position, const int* extent, \
                           float* scores, SIZES, int window, float scale) {                                 \
    write_window_scores<T>(                                                                                 \
        {q, k, nullptr, slot, position, nullptr, m, heads, e, slots, t, window, scale, extent}, scores);    \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(32 * kRowWarps)                                              \
      values_##type(const float* scores, const T* v, const int* slot, const int* extent, T* y, SIZES) {     \
    weigh_values<T>({nullptr, nullptr, v, slot, nullptr, nullptr, m, heads, e, slots, t, 0, 1.0f, extent},  \
                    scores, y);                                                                             \
  }

ROW_KERNELS(f32, float)
ROW_KERNELS(f16, __half)
ROW_KERNELS(bf16, __nv_bfloat16)

extern "C" __global__ void __launch_bounds__(32 * kRowWarps)
    masked_f32(MASKED_ARGUMENTS(float), float* __restrict__ y) {
  online_rows<float>(MASKED, y);
}

#define TILE_KERNEL(name, T, E, aligned)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) name(MASKED_ARGUMENTS(T), T* __restrict__ y) { \
    extern __shared__ __align__(128) unsigned char shared[];                                            \
    online_tiles<T, E, aligned>(MASKED, y, shared);                                                     \
  }

TILE_KERNEL(masked_f16_64, __half, 64, true)
TILE_KERNEL(masked_f16_128, __half, 128, true)
TILE_KERNEL(masked_f16_any_size, __half, 128, false)
TILE_KERNEL(masked_bf16_64, __nv_bfloat16, 64, true)
TILE_KERNEL(masked_bf16_128, __nv_bfloat16, 128, true)
TILE_KERNEL(masked_bf16_any_size, __nv_bfloat16, 128, false)

extern "C" __global__ void __launch_bounds__(256)
    add_mask(float* scores, const float* mask, const int* extent, int m, int t) {
  const int key = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;  // a row of one head
  if (key < in_use(extent, t))
    scores[static_cast<size_t>(row) * t + key] += mask[static_cast<size_t>(row % m) * t + key];
}

extern "C" __global__ void __launch_bounds__(32 * kRowWarps)
    softmax(float* scores, const int* extent, int rows, int t) {
  softmax_rows(scores, rows, t, in_use(extent, t));
}

extern "C" __global__ void __launch_bounds__(32 * kRowWarps)
    scores_max(const float* scores, const int* extent, float* peak, int rows, int t) {
  reduce_scores(scores, peak, rows, t, in_use(extent, t), -INFINITY,
                [](float a, float b) { return fmaxf(a, b); });
}

extern "C" __global__ void __launch_bounds__(32 * kRowWarps)
    scores_sum(const float* scores, const int* extent, float* total, int rows, int t) {
  reduce_scores(scores, total, rows, t, in_use(extent, t), 0.0f, [](float a, float b) { return a + b; });
}

extern "C" __global__ void __launch_bounds__(256)
    scores_subtract_exp(float* scores, const float* peak, const int* extent, int t) {
  map_scores(scores, peak, t, in_use(extent, t),
             [](float x, float p) { return p == -INFINITY ? 0.0f : __expf(x - p); });
}

extern "C" __global__ void __launch_bounds__(256)
    scores_divide(float* scores, const float* total, const int* extent, int t) {
  map_scores(scores, total, t, in_use(extent, t), [](float x, float s) { return s > 0.0f ? x / s : 0.0f; });
}
