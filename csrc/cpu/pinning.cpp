// pinning: rows of unequal length on several threads. A share of the rows for each, settled beforehand, costs
// nothing and makes the time that of the largest share; a queue costs an atomic addition per row and ends
// evenly, if rows are many and the longest come first. A thread bound to a core waits where another could
// have moved.
#include <atomic>
#include <cmath>

#include "pool.h"
#include "rowwise.h"

namespace flashperf {
namespace {

void root_mean_square(const float* x, const int32_t* start, float* y, int64_t row) {
  const int64_t n = start[row + 1] - start[row];
  const float sum = simd::sum_of(n, x + start[row], [](simd::vf v) { return v * v; });
  y[row] = n ? std::sqrt(sum / static_cast<float>(n)) : 0.0f;
}

/// Thread t has the rows from t * rows / threads on, as many as the others.
void rows_by_partition(const float* x, const int32_t* start, float* y, int64_t, int64_t rows, int64_t threads,
                       int64_t pinned) {
  Pool::of(static_cast<int>(threads), pinned).run([&](int t) {
    const int64_t end = rows * (t + 1) / threads;
    for (int64_t row = rows * t / threads; row < end; ++row) root_mean_square(x, start, y, row);
  });
}

void rows_by_queue(const float* x, const int32_t* start, float* y, int64_t, int64_t rows, int64_t threads,
                   int64_t pinned) {
  std::atomic<int64_t> next{0};
  Pool::of(static_cast<int>(threads), pinned).run([&](int) {
    for (int64_t row; (row = next.fetch_add(1, std::memory_order_relaxed)) < rows;)
      root_mean_square(x, start, y, row);
  });
}

}  // namespace

FP_KERNEL(rows_by_partition, "x[v] start[r+1] -> y[r]; v r threads pinned")
FP_KERNEL(rows_by_queue, "x[v] start[r+1] -> y[r]; v r threads pinned")

}  // namespace flashperf
