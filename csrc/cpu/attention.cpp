// placeholder bodies: correct, slow
#include <vector>

#include "rowwise.h"

namespace flashperf {
namespace {
using namespace simd;

struct Keys {
  int64_t m, heads, e, s, t;
};

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  float r = 0;
  for (int64_t j = 0; j < n; ++j) r += to_float(a[j]) * to_float(b[j]);
  return r;
}

template <class T, class Score>
void attend(const T* v, T* y, int64_t e, int64_t first, int64_t end, Score score) {
  float peak = -INFINITY, total = 0;
  std::vector<float> sum(e);
  std::vector<float> w(end > first ? end - first : 0);
  for (int64_t k = first; k < end; ++k) {
    w[k - first] = score(k);
    peak = !(w[k - first] <= peak) ? w[k - first] : peak;
  }
  for (int64_t k = first; k < end && peak > -INFINITY; ++k) {
    const float p = std::exp(w[k - first] - peak);
    total += p;
    for (int64_t j = 0; j < e; ++j) sum[j] += p * to_float(v[k * e + j]);
  }
  for (int64_t j = 0; j < e; ++j) y[j] = from_float<T>(total == 0 ? 0.0f : sum[j] / total);
}

template <class T>
void attention_online(const T* q, const T* kc, const T* vc, const int32_t* slot, const int32_t* position,
                      T* y, int64_t m, int64_t heads, int64_t e, int64_t s, int64_t t, int64_t window,
                      float scale) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const bool valid = slot[i] >= 0 && slot[i] < s && position[i] >= 0;
      const int64_t end = !valid ? 0 : position[i] < t ? position[i] + 1 : t;
      int64_t first = window > 0 ? position[i] + 1 - window : 0;
      if (first < 0) first = 0;
      const int64_t base = valid ? (slot[i] * heads + h) * t * e : 0;
      const T* row = q + (i * heads + h) * e;
      attend(vc + base, y + (i * heads + h) * e, e, first, end,
             [&](int64_t k) { return dot(row, kc + base + k * e, e) * scale; });
    }
}

int64_t used(const int32_t* extent, int64_t t) { return extent[0] < 0 ? 0 : extent[0] < t ? extent[0] : t; }

template <class T>
void attention_online_masked(const T* q, const T* kc, const T* vc, const int32_t* slot, const float* mask,
                             const int32_t* extent, T* y, int64_t m, int64_t heads, int64_t e, int64_t s,
                             int64_t t, float scale) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const bool valid = slot[i] >= 0 && slot[i] < s;
      const int64_t base = valid ? (slot[i] * heads + h) * t * e : 0;
      const T* row = q + (i * heads + h) * e;
      attend(vc + base, y + (i * heads + h) * e, e, 0, valid ? used(extent, t) : 0,
             [&](int64_t k) { return dot(row, kc + base + k * e, e) * scale + mask[i * t + k]; });
    }
}

template <class T>
void scores(const T* q, const T* kc, const int32_t* slot, const int32_t* position, const int32_t* extent,
            float* out, int64_t m, int64_t heads, int64_t e, int64_t s, int64_t t, int64_t window,
            float scale) {
  const int64_t n = used(extent, t);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < m; ++i) {
      const bool valid = slot[i] >= 0 && slot[i] < s;
      for (int64_t k = 0; k < n; ++k) {
        const bool in =
            valid && (!position || (k <= position[i] && (window <= 0 || k > position[i] - window)));
        out[(h * m + i) * t + k] =
            in ? dot(q + (i * heads + h) * e, kc + ((slot[i] * heads + h) * t + k) * e, e) * scale
               : -INFINITY;
      }
    }
}
template <class T>
void attention_scores(const T* q, const T* kc, const int32_t* slot, const int32_t* extent, float* out,
                      int64_t m, int64_t heads, int64_t e, int64_t s, int64_t t, float scale) {
  scores(q, kc, slot, static_cast<const int32_t*>(nullptr), extent, out, m, heads, e, s, t, 0, scale);
}
template <class T>
void attention_scores_window(const T* q, const T* kc, const int32_t* slot, const int32_t* position,
                             const int32_t* extent, float* out, int64_t m, int64_t heads, int64_t e,
                             int64_t s, int64_t t, int64_t window, float scale) {
  scores(q, kc, slot, position, extent, out, m, heads, e, s, t, window, scale);
}
void add_mask(float* scores, const float* mask, const int32_t* extent, int64_t heads, int64_t m, int64_t t) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t k = 0; k < used(extent, t); ++k) scores[(h * m + i) * t + k] += mask[i * t + k];
}
void scores_max(const float* x, const int32_t* extent, float* peak, int64_t heads, int64_t m, int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r) peak[r] = largest_of(used(extent, t), x + r * t);
}
void scores_subtract_exp(float* x, const float* peak, const int32_t* extent, int64_t heads, int64_t m,
                         int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r) {
    const float p = peak[r] == -INFINITY ? 0 : peak[r];
    map(used(extent, t), x + r * t, [p](vf v) { return exp(v - p); }, x + r * t);
  }
}
void scores_sum(const float* x, const int32_t* extent, float* total, int64_t heads, int64_t m, int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r)
    total[r] = sum_of(used(extent, t), x + r * t, [](vf v) { return v; });
}
void scores_divide(float* x, const float* total, const int32_t* extent, int64_t heads, int64_t m, int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r) {
    const float p = total[r] == 0 ? 1 : total[r];
    map(used(extent, t), x + r * t, [p](vf v) { return v / p; }, x + r * t);
  }
}
void softmax_extent(float* x, const int32_t* extent, int64_t heads, int64_t m, int64_t t) {
  for (int64_t r = 0; r < heads * m; ++r) {
    float peak, total;
    scores_max(x + r * t, extent, &peak, 1, 1, t);
    scores_subtract_exp(x + r * t, &peak, extent, 1, 1, t);
    scores_sum(x + r * t, extent, &total, 1, 1, t);
    scores_divide(x + r * t, &total, extent, 1, 1, t);
  }
}
template <class T>
void attention_values(const float* scores, const T* vc, const int32_t* slot, const int32_t* extent, T* y,
                      int64_t heads, int64_t m, int64_t t, int64_t s, int64_t e) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const bool valid = slot[i] >= 0 && slot[i] < s;
      const int64_t base = valid ? (slot[i] * heads + h) * t * e : 0;
      for (int64_t j = 0; j < e; ++j) {
        float sum = 0;
        for (int64_t k = 0; valid && k < used(extent, t); ++k)
          sum += scores[(h * m + i) * t + k] * to_float(vc[base + k * e + j]);
        y[(i * heads + h) * e + j] = from_float<T>(sum);
      }
    }
}

FP_KERNEL_TYPES("attention_online", attention_online,
                "q[m,heads,e] k_cache[s,heads,t,e] v_cache[s,heads,t,e] slot[m] position[m] -> y[m,heads,e]; "
                "m heads e s t window scale")
FP_KERNEL_TYPES("attention_online_masked", attention_online_masked,
                "q[m,heads,e] k_cache[s,heads,t,e] v_cache[s,heads,t,e] slot[m] mask[m,t] extent[1] -> "
                "y[m,heads,e]; m heads e s t scale")
FP_KERNEL_TYPES(
    "attention_scores", attention_scores,
    "q[m,heads,e] k_cache[s,heads,t,e] slot[m] extent[1] -> scores[heads,m,t]; m heads e s t scale")
FP_KERNEL_TYPES("attention_scores_window", attention_scores_window,
                "q[m,heads,e] k_cache[s,heads,t,e] slot[m] position[m] extent[1] -> scores[heads,m,t]; m "
                "heads e s t window scale")
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
