#include "simd.h"

namespace flashperf {
namespace {
void scale_add_f32(const float* x, const float* y, float* z, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) z[i] = alpha * x[i] + y[i];
}
}  // namespace
FP_KERNEL(scale_add_f32, "x[n] y[n] -> z[n]; n alpha")
}  // namespace flashperf
