// roofs: the most that a core can read and copy, as a ceiling for every other kernel (arithmetic:
// roofs_peaks.cpp).
//
// Streams repeat inside the kernel, so that a working set of the size of the L1 cache is not measured through
// the cost of a call. Each writes something that can be checked.
#include "simd.h"

namespace flashperf {
namespace {
using namespace simd;

inline void memory_barrier() { asm volatile("" ::: "memory"); }

constexpr int kAhead =
    8;  // vectors per step of a stream; for sums also two units times a latency of 4 cycles
constexpr int64_t kStep = kAhead * kWidth;

// A vector that is loaded into a register and not used.
inline void only_load(vf x) {
#if defined(__AVX512F__)
  asm volatile("" ::"v"(x));
#elif defined(__SSE2__)
  asm volatile("" ::"x"(x));
#elif defined(__aarch64__)
  asm volatile("" ::"w"(x));
#else
  asm volatile("" ::"m"(x));
#endif
}

// The last pass adds up what it loads, so that there is a result to check; those before it only load, since
// additions would be the limit where another thread of the core uses the same units.
void roof_load(const float* x, float* total, int64_t n, int64_t repeats) {
  vf sums[kAhead] = {};
  int64_t i = 0;
  for (int64_t r = 1; r < repeats; ++r)
    for (i = 0; i + kStep <= n; i += kStep)
      for (int u = 0; u < kAhead; ++u) only_load(load(x + i + u * kWidth));
  memory_barrier();
  float rest = 0;
  for (i = 0; i + kStep <= n; i += kStep)
    for (int u = 0; u < kAhead; ++u) sums[u] += load(x + i + u * kWidth);
  for (; i < n; ++i) rest += x[i];
  for (const vf& s : sums) rest += sum(s);
  *total = rest;
}

void roof_copy(const float* x, float* y, int64_t n, int64_t repeats) {
  for (int64_t r = 0; r < repeats; ++r) {
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep, memory_barrier())  // without the barrier it becomes a memcpy
      for (int u = 0; u < kAhead; ++u) store(y + i + u * kWidth, load(x + i + u * kWidth));
    for (; i < n; ++i, memory_barrier()) y[i] = x[i];
  }
}

// In place: a line comes once and goes back, where a copy also reads the line that it is about to write.
void roof_update(float* x, int64_t n, int64_t repeats) {
  for (int64_t r = 0; r < repeats; ++r, memory_barrier()) {
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep)
      for (int u = 0; u < kAhead; ++u) {
        const int64_t at = i + u * kWidth;
        store(x + at, -load(x + at));
      }
    for (; i < n; ++i) x[i] = -x[i];
  }
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

void roof_copy_around(const float* x, float* y, int64_t n, int64_t repeats) {
  for (int64_t r = 0; r < repeats; ++r) {
    int64_t i = 0;
    for (; i < n && reinterpret_cast<uintptr_t>(y + i) % sizeof(vf); ++i) y[i] = x[i];
    for (; i + kStep <= n; i += kStep)
      for (int u = 0; u < kAhead; ++u) store_around_cache(y + i + u * kWidth, load(x + i + u * kWidth));
    for (; i < n; ++i, memory_barrier()) y[i] = x[i];
#if defined(__SSE2__)
    _mm_sfence();  // such stores become visible in any order until then
#endif
  }
}

void roof_triad(const float* b, const float* c, float* a, int64_t n, int64_t repeats, float factor) {
  const vf f = splat(factor);
  for (int64_t r = 0; r < repeats; ++r, memory_barrier()) {
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep)
      for (int u = 0; u < kAhead; ++u) {
        const int64_t at = i + u * kWidth;
        store(a + at, f * load(c + at) + load(b + at));
      }
    for (; i < n; ++i) a[i] = b[i] + factor * c[i];
  }
}

// Nothing: what remains is the way into a kernel and back.
void roof_dispatch(const float*, float*) {}

FP_KERNEL(roof_load, "x[n] -> total[1]; n repeats")
FP_KERNEL(roof_copy, "x[n] -> y[n]; n repeats")
FP_KERNEL(roof_copy_around, "x[n] -> y[n]; n repeats")
FP_KERNEL(roof_update, "~x[n]; n repeats")
FP_KERNEL(roof_triad, "b[n] c[n] -> a[n]; n repeats factor")
FP_KERNEL(roof_dispatch, "x[1] -> y[1];")

}  // namespace
}  // namespace flashperf
