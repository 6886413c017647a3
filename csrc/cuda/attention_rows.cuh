// Attention by rows: a warp per query and head, a lane per key for the scores, a lane per column for the
// values. Any type, e up to 128: online in one kernel, and materialised with the scores in memory between
// three.
#pragma once

#include "attention_args.cuh"

namespace {

constexpr int kMaxHeadSize = 128, kRowWarps = 4;

/// This lane's score for `key`: the dot product with the query in shared memory, scaled, masked.
template <class T>
DEVICE float score_of(const Attention<T>& a, const float* query, int row, const T* keys, int key) {
  const T* k = keys + static_cast<size_t>(key) * a.e;
  float sum = 0.0f;
  for (int i = 0; i < a.e; ++i) sum += query[i] * to_float(k[i]);
  return sum * a.scale + (a.mask ? a.mask[static_cast<size_t>(row) * a.t + key] : 0.0f);
}

/// Put the query of this warp into its row of shared memory.
template <class T>
DEVICE void load_query(const Attention<T>& a, float* query, int row, int head) {
  for (int i = threadIdx.x % 32; i < a.e; i += 32) query[i] = to_float(a.q[a.query_at(row, head) + i]);
  __syncwarp();
}

/// sums[i] += weight of each of `count` keys (lane j holds that of key j) times column lane + 32 i of its
/// values.
template <class T>
DEVICE void add_values(const Attention<T>& a, float (&sums)[kMaxHeadSize / 32], float weight, const T* values,
                       int count) {
#pragma unroll 2
  for (int j = 0; j < count; ++j) {
    const float w = __shfl_sync(kAllLanes, weight, j);
#pragma unroll
    for (int i = 0; i < kMaxHeadSize / 32; ++i) {
      const int column = threadIdx.x % 32 + 32 * i;
      if (column < a.e) sums[i] += w * to_float(values[static_cast<size_t>(j) * a.e + column]);
    }
  }
}

template <class T>
DEVICE void store_row(const Attention<T>& a, T* y, int row, int head, const float (&sums)[kMaxHeadSize / 32],
                      float factor) {
#pragma unroll
  for (int i = 0; i < kMaxHeadSize / 32; ++i) {
    const int column = threadIdx.x % 32 + 32 * i;
    if (column < a.e) y[a.query_at(row, head) + column] = from_float<T>(sums[i] * factor);
  }
}

// ---- materialised: scores[heads,m,t] go to memory, and each of the next three kernels reads them
// --------------

/// Every score, seen or not: zero in a row without a valid query.
template <class T>
DEVICE void write_scores(const Attention<T>& a, float* scores) {
  __shared__ float queries[kRowWarps][kMaxHeadSize];
  const int warp = threadIdx.x / 32, row = blockIdx.x * kRowWarps + warp, head = blockIdx.y;
  if (row >= a.m) return;  // the whole warp
  load_query(a, queries[warp], row, head);
  const int slot = a.keys_of(row).slot, length = a.length();
  const T* keys = a.k + a.keys_at(max(slot, 0), head);
  float* out = scores + (static_cast<size_t>(head) * a.m + row) * a.t;
  for (int key = threadIdx.x % 32; key < length; key += 32)
    out[key] = slot < 0 ? 0.0f : score_of(a, queries[warp], row, keys, key);
}

/// scores[h,i,j] += mask[i,j]
DEVICE void mask_scores(float* scores, const float* mask, int m, int t) {
  const int key = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;  // a row of one head
  if (key < t) scores[static_cast<size_t>(row) * t + key] += mask[static_cast<size_t>(row % m) * t + key];
}

/// Softmax of the first `length` of each row of t in place, a warp per row; a row of -infinity becomes zeros.
DEVICE void softmax_rows(float* scores, int rows, int t, int length) {
  const int row = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float* x = scores + static_cast<size_t>(row) * t;
  float peak = -INFINITY, total = 0.0f;
  for (int i = lane; i < length; i += 32) peak = fmaxf(peak, x[i]);
  peak = warp_max(peak);
  if (peak == -INFINITY) peak = 0.0f;
  for (int i = lane; i < length; i += 32) total += __expf(x[i] - peak);
  total = warp_sum(total);
  const float factor = total > 0.0f ? 1.0f / total : 0.0f;
  for (int i = lane; i < length; i += 32) x[i] = __expf(x[i] - peak) * factor;
}

template <class T>
DEVICE void weigh_values(const Attention<T>& a, const float* weights, T* y) {
  const int row = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;
  if (row >= a.m) return;
  const auto range = a.keys_of(row);
  const T* values = a.v + a.keys_at(max(range.slot, 0), head);
  const float* weight = weights + (static_cast<size_t>(head) * a.m + row) * a.t;
  const int length = a.length();
  float sums[kMaxHeadSize / 32] = {};
  for (int key = 0; key < length && range.slot >= 0; key += 32) {
    const float mine = key + lane < length ? weight[key + lane] : 0.0f;
    add_values(a, sums, mine, values + static_cast<size_t>(key) * a.e, min(32, length - key));
  }
  store_row(a, y, row, head, sums, 1.0f);
}

// ---- online: 32 keys at a time, the sums rescaled whenever a larger score comes
// -------------------------------

template <class T>
DEVICE void online_rows(const Attention<T>& a, T* y) {
  __shared__ float queries[kRowWarps][kMaxHeadSize];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * kRowWarps + warp,
            head = blockIdx.y;
  if (row >= a.m) return;
  load_query(a, queries[warp], row, head);
  const auto range = a.keys_of(row);
  const size_t base = a.keys_at(max(range.slot, 0), head);
  float peak = -INFINITY, total = 0.0f, sums[kMaxHeadSize / 32] = {};
  for (int key = range.first; key < range.end; key += 32) {
    const bool seen = key + lane < range.end;
    const float score = seen ? score_of(a, queries[warp], row, a.k + base, key + lane) : -INFINITY;
    const float higher = fmaxf(peak, warp_max(score));
    if (higher == -INFINITY) continue;  // masked throughout, for all lanes
    const float weight = __expf(score - higher), correction = __expf(peak - higher);
    peak = higher;
    total = total * correction + warp_sum(weight);
#pragma unroll
    for (int i = 0; i < kMaxHeadSize / 32; ++i) sums[i] *= correction;
    add_values(a, sums, weight, a.v + base + static_cast<size_t>(key) * a.e, min(32, range.end - key));
  }
  store_row(a, y, row, head, sums, total > 0.0f ? 1.0f / total : 0.0f);
}

}  // namespace
