// precision: the same product y = x w in f32 on the FMA units, and in tf32, f16 and bf16 on Tensor Cores.
//
// A narrower type halves the bytes, and Tensor Cores make 8 to 16 times as many multiplications per clock.
// What a "mixed precision" model often does instead is to keep operands in f32 and convert them in memory
// around every product (the cast kernels below): all of them are read and written once more, by three more
// launches.
//   x[m,k] w[k,n] -> y[m,n], row-major, sums in f32. Kernels called *_any_size take rows that don't start at
//   multiples of 16 bytes, element by element.
#include <mma.h>

#include "gemm_ffma.cuh"
#include "gemm_mma.cuh"

namespace {

// ---- plain: one element of y per thread
// ----------------------------------------------------------------------

template <class T>
DEVICE void plain_product(const T* x, const T* w, T* y, int m, int k, int n) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || column >= n) return;
  const T* left = x + static_cast<size_t>(row) * k;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += to_float(left[i]) * to_float(w[static_cast<size_t>(i) * n + column]);
  y[static_cast<size_t>(row) * n + column] = from_float<T>(sum);
}

// ---- WMMA: Tensor Cores by the portable interface
// ------------------------------------------------------------

/// A 16 x 16 tile per warp, eight warps side by side; m, k and n are multiples of 16. Every fragment comes
/// from global memory through L1, which is what bounds it.
template <class T>
DEVICE void wmma_product(const T* x, const T* w, T* y, int k, int n) {
  using namespace nvcuda;
  __shared__ float results[8][16 * 16];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * 16, column = (blockIdx.x * 8 + warp) * 16;
  if (column >= n) return;  // the whole warp goes
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(a, x + static_cast<size_t>(row) * k + i, k);
    wmma::load_matrix_sync(b, w + static_cast<size_t>(i) * n + column, n);
    wmma::mma_sync(sum, a, b, sum);
  }
  wmma::store_matrix_sync(results[warp], sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < 16 * 16; i += 32)
    y[static_cast<size_t>(row + i / 16) * n + column + i % 16] = from_float<T>(results[warp][i]);
}

// ---- mma.sync and FMA: the pipelined products of gemm_mma.cuh and gemm_ffma.cuh
// ------------------------------

template <class T, bool aligned>
DEVICE void mma_product(const T* x, const T* w, T* y, int m, int k, int n, unsigned char* shared) {
  gemm::WarpSums<float> sums;
  gemm::product<T, aligned>(sums, {x, m, k}, {w, k, n}, shared);
  gemm::store<T, aligned>(sums, y, m, n);
}

template <bool aligned>
DEVICE void tf32_product(const float* x, const float* w, float* y, int m, int k, int n,
                         unsigned char* shared) {
  gemm::WarpSums<float> sums;
  gemm::product_tf32<aligned>(sums, {x, m, k}, {w, k, n}, shared);
  gemm::store<float, aligned>(sums, y, m, n);
}

// ---- casts in memory
// -----------------------------------------------------------------------------------------

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

/// Four elements per thread, in one access each way.
template <class From, class To>
DEVICE void cast_all(const From* x, To* y, long long count) {
  const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (first + 4 <= count) {
    const Four<From> from = *reinterpret_cast<const Four<From>*>(x + first);
    Four<To> to;
#pragma unroll
    for (int j = 0; j < 4; ++j) to.at[j] = from_float<To>(to_float(from.at[j]));
    *reinterpret_cast<Four<To>*>(y + first) = to;
  } else {
    for (long long i = first; i < count; ++i) y[i] = from_float<To>(to_float(x[i]));
  }
}

}  // namespace

// ---- kernels
// -----------------------------------------------------------------------------------------------

#define PRODUCT(name, bounds, T, call)                                                                       \
  extern "C" __global__ void __launch_bounds__ bounds name(const T* __restrict__ x, const T* __restrict__ w, \
                                                           T* __restrict__ y, int m, int k, int n) {         \
    extern __shared__ __align__(128) unsigned char shared[];                                                 \
    call;                                                                                                    \
  }

PRODUCT(gemm_plain_f32, (256), float, plain_product(x, w, y, m, k, n))
PRODUCT(gemm_plain_f16, (256), __half, plain_product(x, w, y, m, k, n))
PRODUCT(gemm_plain_bf16, (256), __nv_bfloat16, plain_product(x, w, y, m, k, n))

PRODUCT(gemm_wmma_f16, (256), __half, wmma_product(x, w, y, k, n))
PRODUCT(gemm_wmma_bf16, (256), __nv_bfloat16, wmma_product(x, w, y, k, n))

PRODUCT(gemm_f32, (fma_gemm::kThreads, 2), float, fma_gemm::product<true>({x, m, k}, {w, k, n}, y, shared))
PRODUCT(gemm_f32_any_size, (fma_gemm::kThreads), float,
        fma_gemm::product<false>({x, m, k}, {w, k, n}, y, shared))
PRODUCT(gemm_tf32, (gemm::kThreads), float, tf32_product<true>(x, w, y, m, k, n, shared))
PRODUCT(gemm_tf32_any_size, (gemm::kThreads), float, tf32_product<false>(x, w, y, m, k, n, shared))
PRODUCT(gemm_f16, (gemm::kThreads), __half, (mma_product<__half, true>(x, w, y, m, k, n, shared)))
PRODUCT(gemm_f16_any_size, (gemm::kThreads), __half, (mma_product<__half, false>(x, w, y, m, k, n, shared)))
PRODUCT(gemm_bf16, (gemm::kThreads), __nv_bfloat16,
        (mma_product<__nv_bfloat16, true>(x, w, y, m, k, n, shared)))
PRODUCT(gemm_bf16_any_size, (gemm::kThreads), __nv_bfloat16,
        (mma_product<__nv_bfloat16, false>(x, w, y, m, k, n, shared)))

#define CAST(name, From, To)                                                                         \
  extern "C" __global__ void name(const From* __restrict__ x, To* __restrict__ y, long long count) { \
    cast_all(x, y, count);                                                                           \
  }

CAST(cast_f32_f16, float, __half)
CAST(cast_f16_f32, __half, float)
CAST(cast_f32_bf16, float, __nv_bfloat16)
CAST(cast_bf16_f32, __nv_bfloat16, float)
