// Attention with online softmax: scores are never stored for more than one block of keys.
//
// A tile lays its queries across the lanes of a vector. The products with K and V then broadcast single
// elements of K and V in the order in which they lie in the cache, each lane keeps the maximum and the sum of
// its own row, and nothing is summed across lanes. Few rows (decoding) instead stream the cache row by row.
#include "attention_rows.h"

namespace flashperf {
namespace {
using namespace simd;

// Keys of a row: those up to its position, and only the last `window` of them if window > 0.
struct Causal {
  const int32_t* position;
  int64_t t, window;

  int64_t end(int64_t row) const { return position[row] >= 0 && position[row] < t ? position[row] + 1 : 0; }
  int64_t first(int64_t row) const { return window > 0 ? std::max<int64_t>(0, end(row) - window) : 0; }
  void mask_row(int64_t, int64_t, int64_t, float*) const {}

  // scores[key][lane] of rows from `row` on; a block that all rows see whole needs no mask.
  void mask_tile(int64_t row, int64_t rows, int64_t key, int64_t keys, float* scores, int64_t width) const {
    int32_t from[kLanes] = {}, to[kLanes] = {};
    bool whole = true;
    for (int64_t i = 0; i < rows; ++i) {
      from[i] = static_cast<int32_t>(first(row + i) - key);
      to[i] = static_cast<int32_t>(end(row + i) - key);
      whole &= from[i] <= 0 && to[i] >= keys;
    }
    for (int64_t l = 0; !whole && l < width; l += kWidth) {
      const vi low = *reinterpret_cast<const vi*>(from + l), high = *reinterpret_cast<const vi*>(to + l);
      for (int32_t k = 0; k < keys; ++k) {
        const vf score = load(scores + k * width + l);
        store(scores + k * width + l, (low <= k) & (high > k) ? score : splat(-INFINITY));
      }
    }
  }
};

// All keys in use, each with a number added to its score: what a mask tensor costs.
struct Additive {
  const float* mask;
  int64_t t, extent;

  int64_t end(int64_t) const { return extent; }
  int64_t first(int64_t) const { return 0; }
  void mask_row(int64_t row, int64_t key, int64_t keys, float* scores) const {
    map(keys, scores, [](vf s, vf m) { return s + m; }, scores, mask + row * t + key);
  }

  void mask_tile(int64_t row, int64_t rows, int64_t key, int64_t keys, float* scores, int64_t width) const {
    alignas(64) float block[kWidth * kKeys];
    for (int64_t l = 0; l < rows; l += kWidth) {
      const int64_t n = std::min<int64_t>(kWidth, rows - l);
      transpose_in(mask + (row + l) * t + key, t, n, keys, block, kWidth, 1.0f);
      for (int64_t k = 0; k < keys; ++k)
        store(scores + k * width + l, load(scores + k * width + l) + load(block + k * kWidth));
    }
  }
};

// What a row with no key to see subtracts: -inf - -inf would be NaN.
inline vf finite_peak(vf peak) { return peak == -INFINITY ? splat(0.0f) : peak; }

// Scores of one vector of rows become exp(score - peak); peak and total go on, and the factor by which
// everything summed under the old peak shrinks is returned.
inline vf softmax_step(float* scores, int64_t keys, int64_t width, float* peak, float* total) {
  vf top[2] = {load(peak), splat(-INFINITY)};
  for (int64_t k = 0; k < keys; ++k) top[k & 1] = maximum(load(scores + k * width), top[k & 1]);
  const vf new_peak = maximum(top[0], top[1]), offset = finite_peak(new_peak);
  vf sum[2] = {};
  for (int64_t k = 0; k < keys; ++k) {
    const vf p = exp(load(scores + k * width) - offset);
    store(scores + k * width, p);
    sum[k & 1] += p;
  }
  const vf shrink = exp(load(peak) - offset);
  store(peak, new_peak);
  store(total, load(total) * shrink + (sum[0] + sum[1]));
  return shrink;
}

template <class T, class Rule>
struct Attention {
  const T *q, *k, *v;
  T* y;
  Shape shape;
  float scale;
  Rule rule;

  void tile(int64_t row, int64_t rows, int64_t head, const T* keys, const T* values) const {
    const int64_t e = shape.e, width = padded(rows);
    float* query = scratch(2 * e * width + kKeys * (width + e) + 2 * kLanes);
    float *out = query + e * width, *scores = out + e * width, *block = scores + kKeys * width;
    float *peak = block + kKeys * e, *total = peak + kLanes;
    int64_t first = shape.t, end = 0;
    for (int64_t i = row; i < row + rows; ++i) {
      first = std::min(first, rule.first(i));
      end = std::max(end, rule.end(i));
    }
    for (int64_t l = 0; l < rows; l += kWidth)
      transpose_in(q + shape.query(row + l, head), shape.heads * e, std::min<int64_t>(kWidth, rows - l), e,
                   query + l, width, scale);
    std::fill_n(out, e * width, 0.0f);
    std::fill_n(peak, kLanes, -INFINITY);
    std::fill_n(total, kLanes, 0.0f);
    for (int64_t key = first; key < end; key += kKeys) {
      const int64_t n = std::min(kKeys, end - key);
      multiply<float>({as_floats(keys + key * e, n * e, block), e, 1, query, width, e}, n, width, scores,
                      width, true);
      rule.mask_tile(row, rows, key, n, scores, width);
      for (int64_t l = 0; l < width; l += kWidth) {
        const vf shrink = softmax_step(scores + l, n, width, peak + l, total + l);
        for (int64_t j = 0; j < e; ++j) store(out + j * width + l, load(out + j * width + l) * shrink);
      }
      multiply<float>({as_floats(values + key * e, n * e, block), 1, e, scores, width, n}, e, width, out,
                      width, false);
    }
    for (int64_t l = 0; l < rows; l += kWidth) {
      const vf sum = load(total + l), inverse = sum == 0.0f ? splat(0.0f) : 1.0f / sum;
      for (int64_t j = 0; j < e; ++j) store(out + j * width + l, load(out + j * width + l) * inverse);
      transpose_out(out + l, width, std::min<int64_t>(kWidth, rows - l), e, y + shape.query(row + l, head),
                    shape.heads * e);
    }
  }

  void one_row(int64_t row, int64_t head, const T* keys, const T* values) const {
    const int64_t e = shape.e, end = rule.end(row);
    float* query = scratch(2 * padded(e) + kKeys);
    float *out = query + padded(e), *scores = out + padded(e);
    scaled_query(q + shape.query(row, head), e, scale, query);
    std::fill_n(out, padded(e), 0.0f);
    float peak = -INFINITY, total = 0.0f;
    for (int64_t key = rule.first(row); key < end; key += kKeys) {
      const int64_t n = std::min(kKeys, end - key);
      dots(query, keys + key * e, n, e, scores);
      rule.mask_row(row, key, n, scores);
      const float new_peak = std::max(peak, largest_of(n, scores));
      const float offset = new_peak == -INFINITY ? 0.0f : new_peak, shrink = std::exp(peak - offset);
      total = total * shrink + exponentials(scores, scores, n, offset);
      map(padded(e), out, [shrink](vf x) { return x * shrink; }, out);
      multiply<T>({scores, 0, 1, values + key * e, e, n}, 1, e, out, 0, false);
      peak = new_peak;
    }
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    map(e, y + shape.query(row, head), [inverse](vf x) { return x * inverse; }, out);
  }

  void run(const int32_t* slot) const {
    for_each_run(slot, shape, [&](int64_t row, int64_t rows, int64_t at) {
      if (at < 0) {
        std::memset(y + shape.query(row, 0), 0,
                    static_cast<size_t>(rows * shape.heads * shape.e) * sizeof(T));
        return;
      }
      for (int64_t head = 0; head < shape.heads; ++head) {
        const T *keys = k + shape.keys(at, head), *values = v + shape.keys(at, head);
        if (rows >= kFewestRows) tile(row, rows, head, keys, values);
        else
          for (int64_t i = row; i < row + rows; ++i) one_row(i, head, keys, values);
      }
    });
  }
};

template <class T>
void attention_online(const T* q, const T* k, const T* v, const int32_t* slot, const int32_t* position, T* y,
                      int64_t m, int64_t heads, int64_t e, int64_t s, int64_t t, int64_t window,
                      float scale) {
  Attention<T, Causal>{q, k, v, y, {m, heads, e, s, t}, scale, {position, t, window}}.run(slot);
}

template <class T>
void attention_online_masked(const T* q, const T* k, const T* v, const int32_t* slot, const float* mask,
                             const int32_t* extent, T* y, int64_t m, int64_t heads, int64_t e, int64_t s,
                             int64_t t, float scale) {
  Attention<T, Additive>{q, k, v, y, {m, heads, e, s, t}, scale, {mask, t, used_keys(extent, t)}}.run(slot);
}

FP_KERNEL_TYPES("attention_online", attention_online,
                "q[m,heads,e] k_cache[s,heads,t,e] v_cache[s,heads,t,e] slot[m] position[m] -> y[m,heads,e]; "
                "m heads e s t window scale")
FP_KERNEL_TYPES("attention_online_masked", attention_online_masked,
                "q[m,heads,e] k_cache[s,heads,t,e] v_cache[s,heads,t,e] slot[m] mask[m,t] extent[1] "
                "-> y[m,heads,e]; m heads e s t scale")

}  // namespace
}  // namespace flashperf
