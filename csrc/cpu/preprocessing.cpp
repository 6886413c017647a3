// Preprocessing: the attention mask of a step, built by native code instead of the host's array library.
#include "rowwise.h"

namespace flashperf {
namespace {

// mask[i][k] = 0 where key k <= position[i] (and k > position[i] - window if window > 0), else -inf.
void causal_mask(const int32_t* position, float* mask, int64_t m, int64_t t, int64_t window) {
  for (int64_t i = 0; i < m; ++i, mask += t) {
    const int64_t end = position[i] < t ? position[i] + int64_t{1} : t;
    const int64_t first = window > 0 && end > 0 ? position[i] + 1 - window : 0;
    for (int64_t k = 0; k < t; ++k) mask[k] = k >= first && k < end ? 0.0f : -INFINITY;
  }
}

FP_KERNEL(causal_mask, "position[m] -> mask[m,t]; m t window")

}  // namespace
}  // namespace flashperf
