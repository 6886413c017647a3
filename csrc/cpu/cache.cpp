// cache: a producer and a consumer of the same array. What is measured is the order in which slices of it go
// through both: a slice that fits the cache is still there when the consumer reads it.
#include "rowwise.h"

namespace flashperf {
namespace {

void cache_produce(const float* x, float* t, int64_t n) {
  simd::map(n, t, [](simd::vf v) { return v * v + v; }, x);
}

void cache_consume(const float* t, const float* x, float* y, int64_t n) {
  simd::map(n, y, [two = simd::splat(2.0f)](simd::vf u, simd::vf v) { return two * u - v; }, t, x);
}

}  // namespace

FP_KERNEL(cache_produce, "x[n] -> t[n]; n")
FP_KERNEL(cache_consume, "t[n] x[n] -> y[n]; n")

}  // namespace flashperf
