// quantization: int8 products with a scale per row of activations (per token) and per column of weights.
//
// INT8 Tensor Cores (IMMA) multiply twice as fast as those for 16 bits, and dp4a makes four products per lane
// and instruction without them. What a claim of "INT8 is faster" leaves out stands around the product:
// dynamic scales need the largest magnitude of each row before anything can be rounded, and the int32 sums
// must become floats. static scales, found beforehand, save the first pass; dequantising in the product's
// epilogue saves the last.
//   x[m,k] -> q[m,k] int8, x_scale[m]; q[m,k] w_t[n,k] -> acc[m,n] int32; y[m,n] = acc * x_scale[m] *
//   w_scale[n]. w_t is the weight transposed, as int8 products want it. *_any_size: k isn't a multiple of 16.
#include "gemm_mma.cuh"

namespace {

constexpr int kRowThreads = 256;

/// Round to nearest even and keep to -127 .. 127: the range is symmetric, so that -x is as good as x.
DEVICE signed char to_int8(float x) {
  return static_cast<signed char>(max(-127, min(127, __float2int_rn(x))));
}

// ---- plain: a thread per element of the sums
// -----------------------------------------------------------------

DEVICE void plain_product(const signed char* q, const signed char* w_t, int* acc, int m, int k, int n) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || column >= n) return;
  int sum = 0;
  for (int i = 0; i < k; ++i)
    sum += static_cast<int>(q[static_cast<size_t>(row) * k + i]) * w_t[static_cast<size_t>(column) * k + i];
  acc[static_cast<size_t>(row) * n + column] = sum;
}

// ---- quantise, dequantise
// ------------------------------------------------------------------------------------

/// A block per row: the largest magnitude, then the row again (from cache), rounded. A row of zeros gets
/// scale 1.
template <class T>
DEVICE void quantize_dynamic(const T* x, signed char* q, float* x_scale, int k) {
  __shared__ float peaks[kRowThreads / 32];
  const size_t row = static_cast<size_t>(blockIdx.x) * k;
  float peak = 0.0f;
  for (int i = threadIdx.x; i < k; i += kRowThreads) peak = fmaxf(peak, fabsf(to_float(x[row + i])));
  peak = warp_max(peak);
  if (threadIdx.x % 32 == 0) peaks[threadIdx.x / 32] = peak;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kRowThreads / 32; ++warp) peak = fmaxf(peak, peaks[warp]);
  const float scale = peak > 0.0f ? peak / 127.0f : 1.0f;
  const float inverse = 1.0f / scale;
  for (int i = threadIdx.x; i < k; i += kRowThreads) q[row + i] = to_int8(to_float(x[row + i]) * inverse);
  if (threadIdx.x == 0) x_scale[blockIdx.x] = scale;
}

/// One scale for all, known beforehand: no reduction, no order.
template <class T>
DEVICE void quantize_static(const T* x, signed char* q, float* x_scale, int k, float scale) {
  const size_t row = static_cast<size_t>(blockIdx.x) * k;
  const float inverse = 1.0f / scale;
  for (int i = threadIdx.x; i < k; i += kRowThreads) q[row + i] = to_int8(to_float(x[row + i]) * inverse);
  if (threadIdx.x == 0) x_scale[blockIdx.x] = scale;
}

template <class T>
DEVICE void dequantize(const int* acc, const float* x_scale, const float* w_scale, T* y, int n) {
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= n) return;
  const size_t at = static_cast<size_t>(blockIdx.x) * n + column;
  y[at] = from_float<T>(static_cast<float>(acc[at]) * x_scale[blockIdx.x] * w_scale[column]);
}

// ---- dp4a: four products per lane and instruction, on the integer units
// --------------------------------------

/// Tiles of 64 x 64 with 64 of k; 16 x 16 threads of 4 x 4 sums. A pad of one register puts rows in other
/// banks.
template <bool aligned>
DEVICE void dp4a_product(const signed char* q, const signed char* w_t, int* acc, int m, int k, int n) {
  constexpr int kTile = 64, kDepth = 16;  // of registers that hold four elements each
  __shared__ int q_tile[kTile][kDepth + 1], w_tile[kTile][kDepth + 1];
  const int t = threadIdx.x, row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  const int row = t / 16, column = t % 16;
  int sums[4][4] = {};
  const auto four = [k](const signed char* matrix, int r, int rows, int i) {
    if constexpr (aligned)
      return r < rows && i < k ? *reinterpret_cast<const int*>(matrix + static_cast<size_t>(r) * k + i) : 0;
    int packed = 0;
    for (int j = 0; j < 4; ++j)
      if (r < rows && i + j < k) packed |= (matrix[static_cast<size_t>(r) * k + i + j] & 0xFF) << 8 * j;
    return packed;
  };
  for (int k0 = 0; k0 < k; k0 += 4 * kDepth) {
    for (int i = t; i < kTile * kDepth; i += 256) {
      q_tile[i / kDepth][i % kDepth] = four(q, row0 + i / kDepth, m, k0 + i % kDepth * 4);
      w_tile[i / kDepth][i % kDepth] = four(w_t, column0 + i / kDepth, n, k0 + i % kDepth * 4);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
#pragma unroll
      for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 4; ++b)
          sums[a][b] = __dp4a(q_tile[row + 16 * a][i], w_tile[column + 16 * b][i], sums[a][b]);
    __syncthreads();
  }
#pragma unroll
  for (int a = 0; a < 4; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (row0 + row + 16 * a < m && column0 + column + 16 * b < n)
        acc[static_cast<size_t>(row0 + row + 16 * a) * n + column0 + column + 16 * b] = sums[a][b];
}

// ---- IMMA
// ----------------------------------------------------------------------------------------------------

/// `write(row, column, sum)` for every element of the product.
template <bool aligned, class Write>
DEVICE void imma_product(const signed char* q, const signed char* w_t, int m, int k, int n,
                         unsigned char* shared, Write write) {
  gemm::WarpSums<int> sums;
  gemm::product_int8<aligned>(sums, {q, m, k}, {w_t, n, k}, shared);
  const int row0 = blockIdx.y * gemm::kBlockRows + gemm::warp_row();
  const int column0 = blockIdx.x * gemm::kBlockColumns + gemm::warp_column();
  gemm::for_each_pair<int>(sums, row0, column0, [&](int row, int column, int first, int second) {
    if (row >= m) return;
    if (column < n) write(row, column, first);
    if (column + 1 < n) write(row, column + 1, second);
  });
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(256)
    gemm_plain(const signed char* q, const signed char* w_t, int* acc, int m, int k, int n) {
  plain_product(q, w_t, acc, m, k, n);
}

#define INT8_PRODUCTS(suffix, aligned)                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                             \
      gemm_dp4a##suffix(const signed char* __restrict__ q, const signed char* __restrict__ w_t, \
                        int* __restrict__ acc, int m, int k, int n) {                           \
    dp4a_product<aligned>(q, w_t, acc, m, k, n);                                                \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(gemm::kThreads)                                  \
      gemm_imma##suffix(const signed char* __restrict__ q, const signed char* __restrict__ w_t, \
                        int* __restrict__ acc, int m, int k, int n) {                           \
    extern __shared__ __align__(128) unsigned char shared[];                                    \
    imma_product<aligned>(q, w_t, m, k, n, shared, [&](int row, int column, int sum) {          \
      acc[static_cast<size_t>(row) * n + column] = sum;                                         \
    });                                                                                         \
  }

INT8_PRODUCTS(, true)
INT8_PRODUCTS(_any_size, false)

#define FUSED_DEQUANTIZE(type, T, suffix, aligned)                                                           \
  extern "C" __global__ void __launch_bounds__(gemm::kThreads) gemm_imma_dequantize_##type##suffix(          \
      const signed char* __restrict__ q, const signed char* __restrict__ w_t,                                \
      const float* __restrict__ x_scale, const float* __restrict__ w_scale, T* __restrict__ y, int m, int k, \
      int n) {                                                                                               \
    extern __shared__ __align__(128) unsigned char shared[];                                                 \
    imma_product<aligned>(q, w_t, m, k, n, shared, [&](int row, int column, int sum) {                       \
      const float value = static_cast<float>(sum) * x_scale[row] * w_scale[column];                          \
      y[static_cast<size_t>(row) * n + column] = from_float<T>(value);                                       \
    });                                                                                                      \
  }

#define AROUND_KERNELS(type, T)                                                                   \
  extern "C" __global__ void __launch_bounds__(kRowThreads) quantize_dynamic_##type(              \
      const T* __restrict__ x, signed char* __restrict__ q, float* __restrict__ x_scale, int k) { \
    quantize_dynamic(x, q, x_scale, k);                                                           \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                       \
      quantize_static_##type(const T* __restrict__ x, signed char* __restrict__ q,                \
                             float* __restrict__ x_scale, int k, float scale) {                   \
    quantize_static(x, q, x_scale, k, scale);                                                     \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(256)                                               \
      dequantize_##type(const int* __restrict__ acc, const float* __restrict__ x_scale,           \
                        const float* __restrict__ w_scale, T* __restrict__ y, int n) {            \
    dequantize(acc, x_scale, w_scale, y, n);                                                      \
  }                                                                                               \
  FUSED_DEQUANTIZE(type, T, , true)                                                               \
  FUSED_DEQUANTIZE(type, T, _any_size, false)

AROUND_KERNELS(f32, float)
AROUND_KERNELS(f16, __half)
AROUND_KERNELS(bf16, __nv_bfloat16)
