// flush: takes given bytes out of every cache, also out of a shared last one that no pass over other bytes
// empties.
//
// A pass over twice the last level leaves what it should replace where that level is shared with other
// machines, or doesn't hold what was merely read. Flushing a line is coherent: it leaves the caches of all
// cores.
#include "kernel.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace flashperf {
namespace {

constexpr int64_t kLine = 64;

#if defined(__x86_64__)
inline void flush_line(const uint8_t* p) {
#if defined(__AVX512F__)
  asm volatile("clflushopt %0" ::"m"(*p) : "memory");  // unordered: several at a time
#else
  _mm_clflush(p);
#endif
}
#endif

// done: 1 where the processor lets a program flush a line, else 0 and nothing was flushed.
void flush_lines(const uint8_t* x, int64_t* done, int64_t n) {
#if defined(__x86_64__)
  for (int64_t i = 0; i < n; i += kLine) flush_line(x + i);
  if (n > 0) flush_line(x + n - 1);  // the line of the last byte, where x lies on no boundary
  _mm_mfence();
  *done = 1;
#else
  (void)x, (void)n;
  *done = 0;
#endif
}

}  // namespace

FP_KERNEL(flush_lines, "x[n] -> done[1]; n")

}  // namespace flashperf
