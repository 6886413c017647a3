// batching: a product over the rows of sequences of unequal length, padded to the longest or packed.
//
// A padded batch is a rectangle: simple indices, and work on rows that mean nothing. Packed, the rows of all
// sequences follow one another and their starts are kept beside them. The product is the same FMA product;
// padding adds rows to it, and a copy in and out where the data comes packed.
// Buckets are rectangles of sequences of about one length.
//   packed x[rows,k], first[batch], end[batch] -> padded[batch,longest,k] with zeros, and back; w[k,n].
#include "gemm_ffma.cuh"

/// padded[sequence,i,:] = x[first[sequence] + i,:], or 0 beyond its end. A row of the result per blockIdx.x.
extern "C" __global__ void __launch_bounds__(256)
    pad_rows(const float* __restrict__ x, const int* __restrict__ first, const int* __restrict__ end,
             float* __restrict__ padded, int longest, int k) {
  const int sequence = blockIdx.x / longest, row = first[sequence] + blockIdx.x % longest;
  const bool inside = row < end[sequence];
  for (int i = threadIdx.x; i < k; i += blockDim.x)
    padded[static_cast<size_t>(blockIdx.x) * k + i] = inside ? x[static_cast<size_t>(row) * k + i] : 0.0f;
}

/// y[first[sequence] + i,:] = padded[sequence,i,:]: the rows that mean something.
extern "C" __global__ void __launch_bounds__(256)
    unpad_rows(const float* __restrict__ padded, const int* __restrict__ first, const int* __restrict__ end,
               float* __restrict__ y, int longest, int n) {
  const int sequence = blockIdx.x / longest, row = first[sequence] + blockIdx.x % longest;
  if (row >= end[sequence]) return;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[static_cast<size_t>(row) * n + i] = padded[static_cast<size_t>(blockIdx.x) * n + i];
}

#define ROWS_PRODUCT(name, bounds, aligned)                                                                 \
  extern "C" __global__ void __launch_bounds__ bounds name(const float* __restrict__ x,                     \
                                                           const float* __restrict__ w,                     \
                                                           float* __restrict__ y, int rows, int k, int n) { \
    extern __shared__ __align__(128) unsigned char shared[];                                                \
    fma_gemm::product<aligned>({x, rows, k}, {w, k, n}, y, shared);                                         \
  }

ROWS_PRODUCT(multiply_rows, (fma_gemm::kThreads, 2), true)
ROWS_PRODUCT(multiply_rows_any_size, (fma_gemm::kThreads), false)
