// batching: what stands around the product over padded rows. Sequences lie one after another, b of them go
// into a rectangle of b times `longest` rows, zeros after the end of each, and the rows of its result that
// mean something go back. Memory traffic alone: the price of the rectangle besides the rows that are
// multiplied for nothing.
#include <algorithm>

#include "kernel.h"

namespace flashperf {
namespace {

void pad_rows(const float* x, const int32_t* first, const int32_t* end, float* padded, int64_t, int64_t k,
              int64_t b, int64_t padded_rows) {
  const int64_t longest = padded_rows / b;
  for (int64_t i = 0; i < b; ++i) {
    float* const to = padded + i * longest * k;
    const int64_t real = (end[i] - first[i]) * k;
    std::copy_n(x + first[i] * k, real, to);
    std::fill(to + real, to + longest * k, 0.0f);
  }
}

void unpad_rows(const float* padded, const int32_t* first, const int32_t* end, float* y, int64_t, int64_t n,
                int64_t b, int64_t padded_rows) {
  const int64_t longest = padded_rows / b;
  for (int64_t i = 0; i < b; ++i)
    std::copy_n(padded + i * longest * n, (end[i] - first[i]) * n, y + first[i] * n);
}

}  // namespace

FP_KERNEL(pad_rows, "x[rows,k] first[b] end[b] -> padded[p,k]; rows k b p")
FP_KERNEL(unpad_rows, "padded[p,n] first[b] end[b] -> y[rows,n]; rows n b p")

}  // namespace flashperf
