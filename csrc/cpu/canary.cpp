// Canaries: fixed pieces of work that say how fast the machine is, beside which saved runs are compared. They
// are frozen: no header of the kernels is used here, so that no change of a kernel can change a canary too. A
// change of this file needs a new VERSION in flashperf/gate/canaries.py, and makes older saved runs not
// comparable.
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdlib>

#include "kernel.h"

namespace flashperf {
namespace {

// Multiply-adds on a block that stays in the first-level cache: arithmetic and its issue rate.
void canary_compute(const float* x, float* y, int64_t n, int64_t passes) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] * 0.999f + x[i];
    asm volatile("" ::: "memory");  // each pass is done, none merged into another
  }
}

// Read, write and write-allocate in a working set of the size given: the level of memory that holds it.
void canary_bandwidth(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1.0f;
}

// As good as nothing, called many times: the way from Python into a kernel.
void canary_dispatch(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

// Fresh pages from the kernel, each touched once, and given back: page faults and the clearing of pages.
void canary_page_fault(float* y, int64_t one, int64_t pages) {
  const int64_t page = 4096;
#if defined(__linux__)
  void* fresh = mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return;
  madvise(fresh, pages * page, MADV_NOHUGEPAGE);
#else
  void* fresh = std::malloc(pages * page);
  if (!fresh) return;
#endif
  volatile char* bytes = static_cast<char*>(fresh);
  for (int64_t i = 0; i < pages; ++i) bytes[i * page] = 1;
  y[one - 1] = static_cast<float>(bytes[0]);
#if defined(__linux__)
  munmap(fresh, pages * page);
#else
  std::free(fresh);
#endif
}

FP_KERNEL(canary_compute, "x[n] -> y[n]; n passes")
FP_KERNEL(canary_bandwidth, "x[n] -> y[n]; n")
FP_KERNEL(canary_dispatch, "x[n] -> y[n]; n")
FP_KERNEL(canary_page_fault, "-> y[one]; one pages")

}  // namespace
}  // namespace flashperf
