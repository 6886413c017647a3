// Streaming: the least that a kernel can do with memory, one thread. The roofs and the canaries are measured
// with these, so each does what its name says: no library memcpy that chooses its own kind of store.
#include "rowwise.h"

namespace flashperf {
namespace {
using namespace simd;

constexpr int64_t kBlock = kUnroll * kWidth;

// Compilers turn a plain copy loop into memcpy; a barrier that emits no code stops that.
inline void keep_loop() { asm volatile("" ::: "memory"); }

void copy_f32(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int u = 0; u < kUnroll; ++u) store(y + i + u * kWidth, load(x + i + u * kWidth));
    keep_loop();
  }
  for (; i < n; ++i, keep_loop()) y[i] = x[i];
}

inline void store_around_cache(float* p, vf x) {  // p lies on a vector boundary
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)x);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, (__m256)x);
#elif defined(__SSE2__)
  _mm_stream_ps(p, (__m128)x);
#else
  store(p, x);
#endif
}

// A cached store first reads the line that it will overwrite; one that goes around the cache doesn't.
void copy_stream_f32(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(y + i) % sizeof(vf); ++i) y[i] = x[i];
  for (; i + kBlock <= n; i += kBlock)
    for (int u = 0; u < kUnroll; ++u) store_around_cache(y + i + u * kWidth, load(x + i + u * kWidth));
  for (; i < n; ++i, keep_loop()) y[i] = x[i];
#if defined(__SSE2__)
  _mm_sfence();  // such stores become visible in any order until then
#endif
}

void triad_f32(const float* b, const float* c, float* a, int64_t n, float factor) {
  map(n, a, [factor](vf v, vf w) { return v + factor * w; }, b, c);
}

void read_sum_f32(const float* x, float* total, int64_t n) {
  *total = sum_of(n, x, [](vf v) { return v; });
}

FP_KERNEL(copy_f32, "x[n] -> y[n]; n")
FP_KERNEL(copy_stream_f32, "x[n] -> y[n]; n")
FP_KERNEL(triad_f32, "b[n] c[n] -> a[n]; n factor")
FP_KERNEL(read_sum_f32, "x[n] -> total[1]; n")

}  // namespace
}  // namespace flashperf
