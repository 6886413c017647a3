// Attention as separate kernels that store the scores: the eager path of a framework. Scores are f32,
// scores[head][row][key]; only the first extent[0] keys of each row are in use.
#include "attention_rows.h"

namespace flashperf {
namespace {
using namespace simd;

// One run of rows of one slot; scores of the keys [first, end).
template <class T>
void score_run(const T* q, const T* keys, const Shape& shape, int64_t row, int64_t rows, int64_t head,
               int64_t first, int64_t end, float* scores, float scale) {
  const int64_t e = shape.e, width = padded(rows), stride = shape.heads * e;
  float* query = scratch(std::max(e * width, padded(e)) + kKeys * (e + std::max<int64_t>(width, kWidth)));
  float *block = query + std::max(e * width, padded(e)), *turned = block + kKeys * e;
  if (rows < kFewestRows) {
    for (int64_t i = 0; i < rows; ++i) {
      scaled_query(q + shape.query(row + i, head), e, scale, query);
      for (int64_t key = first; key < end; key += kKeys) {
        const int64_t n = std::min(kKeys, end - key);
        dots(query, keys + key * e, n, e, turned);
        std::copy_n(turned, n, scores + i * shape.t + key);
      }
    }
    return;
  }
  for (int64_t l = 0; l < rows; l += kWidth)
    transpose_in(q + shape.query(row + l, head), stride, std::min<int64_t>(kWidth, rows - l), e, query + l,
                 width, scale);
  for (int64_t key = first; key < end; key += kKeys) {
    const int64_t n = std::min(kKeys, end - key);
    multiply<float>({as_floats(keys + key * e, n * e, block), e, 1, query, width, e}, n, width, turned, width,
                    true);
    for (int64_t l = 0; l < rows; l += kWidth)
      transpose_out(turned + l, width, std::min<int64_t>(kWidth, rows - l), n, scores + l * shape.t + key,
                    shape.t);
  }
}

template <class T>
void attention_scores(const T* q, const T* k, const int32_t* slot, const int32_t* extent, float* scores,
                      int64_t m, int64_t heads, int64_t e, int64_t s, int64_t t, float scale) {
  const Shape shape{m, heads, e, s, t};
  const int64_t end = used_keys(extent, t);
  for_each_run(slot, shape, [&](int64_t row, int64_t rows, int64_t at) {
    for (int64_t head = 0; head < heads; ++head) {
      float* to = scores + (head * m + row) * t;
      if (at >= 0) score_run(q, k + shape.keys(at, head), shape, row, rows, head, 0, end, to, scale);
      else
        for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * t, end, -INFINITY);
    }
  });
}

// The same for a sliding window: blocks of keys that no row of a run sees are not computed, and what a row
// does not see is -inf.
template <class T>
void attention_scores_window(const T* q, const T* k, const int32_t* slot, const int32_t* position,
                             const int32_t* extent, float* scores, int64_t m, int64_t heads, int64_t e,
                             int64_t s, int64_t t, int64_t window, float scale) {
  const Shape shape{m, heads, e, s, t};
  const int64_t extent_end = used_keys(extent, t);
  const auto end_of = [&](int64_t i) {
    return position[i] < 0 || position[i] >= t ? 0 : std::min<int64_t>(position[i] + 1, extent_end);
  };
  const auto first_of = [&](int64_t i) {
    return window > 0 ? std::clamp<int64_t>(position[i] + int64_t{1} - window, 0, end_of(i)) : int64_t{0};
  };
  for_each_run(slot, shape, [&](int64_t row, int64_t rows, int64_t at) {
    int64_t first = extent_end, end = 0;
    for (int64_t i = row; at >= 0 && i < row + rows; ++i) {
      first = std::min(first, first_of(i));
      end = std::max(end, end_of(i));
    }
    for (int64_t head = 0; head < heads; ++head) {
      float* to = scores + (head * m + row) * t;
      if (first < end) score_run(q, k + shape.keys(at, head), shape, row, rows, head, first, end, to, scale);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t from = at < 0 ? extent_end : first_of(row + i),
                      until = at < 0 ? extent_end : end_of(row + i);
        std::fill(to + i * t, to + i * t + from, -INFINITY);
        std::fill(to + i * t + std::max(from, until), to + i * t + extent_end, -INFINITY);
      }
    }
  });
}

// y = scores * V: rows of scores are the broadcast operand, V is read as it lies.
template <class T>
void attention_values(const float* scores, const T* v, const int32_t* slot, const int32_t* extent, T* y,
                      int64_t heads, int64_t m, int64_t t, int64_t s, int64_t e) {
  const Shape shape{m, heads, e, s, t};
  const int64_t end = used_keys(extent, t), width = padded(e);
  for_each_run(slot, shape, [&](int64_t row, int64_t rows, int64_t at) {
    float* out = scratch(kLanes * width);
    for (int64_t head = 0; head < heads; ++head) {
      const float* p = scores + (head * m + row) * t;
      if (at < 0 || end == 0) std::fill_n(out, rows * width, 0.0f);
      else multiply<T>({p, t, 1, v + shape.keys(at, head), e, end}, rows, e, out, width, true);
      for (int64_t i = 0; i < rows; ++i)
        map(e, y + shape.query(row + i, head), [](vf x) { return x; }, out + i * width);
    }
  });
}

void add_mask(float* scores, const float* mask, const int32_t* extent, int64_t heads, int64_t m, int64_t t) {
  const int64_t n = used_keys(extent, t);
  for (int64_t r = 0; r < heads * m; ++r, scores += t)
    map(n, scores, [](vf x, vf y) { return x + y; }, scores, mask + r % m * t);
}

// A row that is -inf throughout (padding, fully masked) has weight 0 everywhere, not NaN.
float finite(float peak) { return peak == -INFINITY ? 0.0f : peak; }
float nonzero(float total) { return total == 0.0f ? 1.0f : total; }

void softmax_extent(float* scores, const int32_t* extent, int64_t heads, int64_t m, int64_t t) {
  const int64_t n = used_keys(extent, t);
  for (int64_t r = 0; r < heads * m; ++r, scores += t) {
    const float total = exponentials(scores, scores, n, finite(largest_of(n, scores)));
    const float scale = 1.0f / nonzero(total);
    map(n, scores, [scale](vf x) { return x * scale; }, scores);
  }
}

// The same as four passes.
void scores_max(const float* scores, const int32_t* extent, float* peak, int64_t heads, int64_t m,
                int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r) peak[r] = largest_of(used_keys(extent, t), scores + r * t);
}

void scores_subtract_exp(float* scores, const float* peak, const int32_t* extent, int64_t heads, int64_t m,
                         int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r, scores += t) {
    const float offset = finite(peak[r]);
    map(used_keys(extent, t), scores, [offset](vf x) { return exp(x - offset); }, scores);
  }
}

void scores_sum(const float* scores, const int32_t* extent, float* total, int64_t heads, int64_t m,
                int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r)
    total[r] = sum_of(used_keys(extent, t), scores + r * t, [](vf x) { return x; });
}

void scores_divide(float* scores, const float* total, const int32_t* extent, int64_t heads, int64_t m,
                   int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r, scores += t) {
    const float divisor = nonzero(total[r]);
    map(used_keys(extent, t), scores, [divisor](vf x) { return x / divisor; }, scores);
  }
}

FP_KERNEL_TYPES(
    "attention_scores", attention_scores,
    "q[m,heads,e] k_cache[s,heads,t,e] slot[m] extent[1] -> scores[heads,m,t]; m heads e s t scale")
FP_KERNEL_TYPES("attention_scores_window", attention_scores_window,
                "q[m,heads,e] k_cache[s,heads,t,e] slot[m] position[m] extent[1] -> scores[heads,m,t]; "
                "m heads e s t window scale")
FP_KERNEL_TYPES("attention_values", attention_values,
                "scores[heads,m,t] v_cache[s,heads,t,e] slot[m] extent[1] -> y[m,heads,e]; heads m t s e")
FP_KERNEL(add_mask, "~scores[heads,m,t] mask[m,t] extent[1]; heads m t")
FP_KERNEL(softmax_extent, "~scores[heads,m,t] extent[1]; heads m t")
FP_KERNEL(scores_max, "scores[heads,m,t] extent[1] -> peak[heads,m]; heads m t")
FP_KERNEL(scores_subtract_exp, "~scores[heads,m,t] peak[heads,m] extent[1]; heads m t")
FP_KERNEL(scores_sum, "scores[heads,m,t] extent[1] -> total[heads,m]; heads m t")
FP_KERNEL(scores_divide, "~scores[heads,m,t] total[heads,m] extent[1]; heads m t")

}  // namespace
}  // namespace flashperf
