// launch: work that is issued in one call or in many. The kernel is as small as one can be; what is measured
// is how often it is called.
#include "rowwise.h"

namespace flashperf {
namespace {

void scale_add_f32(const float* x, const float* y, float* z, int64_t n, float alpha) {
  simd::map(n, z, [a = simd::splat(alpha)](simd::vf u, simd::vf v) { return a * u + v; }, x, y);
}

}  // namespace

FP_KERNEL(scale_add_f32, "x[n] y[n] -> z[n]; n alpha")

}  // namespace flashperf
