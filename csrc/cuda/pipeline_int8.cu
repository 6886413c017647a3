// pipeline_int8: INT8 in the pipeline's MLP, beside the products of quantization. Gate and up with SwiGLU as
// the epilogue of one product, and the whole MLP in one kernel.
//   q[m,k] INT8 with x_scale[m]; weights transposed, w_t[n,k] with w_scale[n], as INT8 products want them.
#include "gemm_mma.cuh"

namespace {

DEVICE float silu(float x) { return x / (1.0f + __expf(-x)); }
DEVICE signed char to_int8(float x) {
  return static_cast<signed char>(max(-127, min(127, __float2int_rn(x))));
}

// ---- INT8: gate and up in one product, in turns of 32 rows of their transposes
// -------------------------------

template <bool aligned, int group>
struct InterleavedRows {
  using Element = signed char;
  static constexpr bool kAligned = aligned;
  Matrix<signed char, aligned> even, odd;

  DEVICE static int source_row(int row) { return row / (2 * group) * group + row % group; }
  DEVICE bool has(int row, int column) const { return even.has(source_row(row), column); }
  DEVICE const signed char* at(int row, int column) const {
    return (row / group % 2 ? odd : even).at(source_row(row), column);
  }
};

template <class T, bool aligned>
DEVICE void swiglu_int8(const signed char* q, const signed char* gate_t, const signed char* up_t,
                        const float* x_scale, const float* gate_scale, const float* up_scale, T* h, int m,
                        int k, int n, unsigned char* shared) {
  using Both = InterleavedRows<aligned, gemm::kWarpColumns / 2>;  // a warp's columns: half gate, half up
  gemm::WarpSums<int> sums;
  gemm::product_int8<aligned, Both>(sums, {q, m, k}, {{gate_t, n, k}, {up_t, n, k}}, shared);
  const int row0 = blockIdx.y * gemm::kBlockRows + gemm::warp_row(), lane = threadIdx.x % 32;
  const int column0 = blockIdx.x * (gemm::kBlockColumns / 2) + gemm::warp_column() / 2;
#pragma unroll
  for (int i = 0; i < gemm::kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < gemm::kColumnTiles / 2; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = row0 + i * 16 + lane / 4 + r / 2 * 8, column = column0 + j * 8 + lane % 4 * 2 + r % 2;
        if (row >= m || column >= n) continue;
        const float g = static_cast<float>(sums[i][j][r]) * x_scale[row] * gate_scale[column];
        const float u =
            static_cast<float>(sums[i][j + gemm::kColumnTiles / 2][r]) * x_scale[row] * up_scale[column];
        h[static_cast<size_t>(row) * n + column] = from_float<T>(silu(g) * u);
      }
}

// ---- INT8: the whole MLP of 8 rows in one block, a warp per column
// -------------------------------------------

constexpr int kOverRows = 8, kOverWarps = 8;

/// Row `threadIdx.x / 32` of `count` values as INT8; its scale.
template <class T>
DEVICE void quantize_row(const T* x, signed char* q, float* scale, int count, bool valid) {
  float peak = 0.0f;
  for (int i = threadIdx.x % 32; i < count; i += 32) peak = fmaxf(peak, valid ? fabsf(to_float(x[i])) : 0.0f);
  peak = warp_max(peak);
  const float step = peak > 0.0f ? peak / 127.0f : 1.0f, inverse = 1.0f / step;
  for (int i = threadIdx.x % 32; i < count; i += 32) q[i] = valid ? to_int8(to_float(x[i]) * inverse) : 0;
  if (threadIdx.x % 32 == 0) *scale = step;
}

/// sums[r] += row r of q times one row of w_t, `count` elements (a multiple of 4), over the warp.
DEVICE void multiply_rows(int (&sums)[kOverRows], const signed char* q, const signed char* w_t, int count) {
  const int words = count / 4, *left = reinterpret_cast<const int*>(q),
            *right = reinterpret_cast<const int*>(w_t);
  for (int i = threadIdx.x % 32; i < words; i += 32) {
    const int w = right[i];
#pragma unroll
    for (int r = 0; r < kOverRows; ++r) sums[r] = __dp4a(left[r * words + i], w, sums[r]);
  }
#pragma unroll
  for (int r = 0; r < kOverRows; ++r) sums[r] = warp_sum(sums[r]);
}

/// `shared`: hidden[8,f] f32, then x[8,d] and hidden[8,f] as INT8. Sizes are multiples of 4.
template <class T>
DEVICE void mlp_over_int8(const T* x, const signed char* gate_t, const float* gate_scale,
                          const signed char* up_t, const float* up_scale, const signed char* down_t,
                          const float* down_scale, T* y, int m, int d, int f, unsigned char* shared) {
  __shared__ float x_scale[kOverRows], h_scale[kOverRows];
  float* hidden = reinterpret_cast<float*>(shared);
  signed char *q_rows = reinterpret_cast<signed char*>(hidden + kOverRows * f),
              *q_hidden = q_rows + kOverRows * d;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * kOverRows + warp;
  quantize_row(x + static_cast<size_t>(row) * d, q_rows + warp * d, x_scale + warp, d, row < m);
  __syncthreads();
  for (int column = warp; column < f; column += kOverWarps) {
    int g[kOverRows] = {}, u[kOverRows] = {};
    multiply_rows(g, q_rows, gate_t + static_cast<size_t>(column) * d, d);
    multiply_rows(u, q_rows, up_t + static_cast<size_t>(column) * d, d);
#pragma unroll
    for (int r = 0; r < kOverRows; ++r)
      if (lane == r)
        hidden[r * f + column] =
            silu(g[r] * x_scale[r] * gate_scale[column]) * (u[r] * x_scale[r] * up_scale[column]);
  }
  __syncthreads();
  quantize_row(hidden + warp * f, q_hidden + warp * f, h_scale + warp, f, true);
  __syncthreads();
  for (int column = warp; column < d; column += kOverWarps) {
    int sums[kOverRows] = {};
    multiply_rows(sums, q_hidden, down_t + static_cast<size_t>(column) * f, f);
#pragma unroll
    for (int r = 0; r < kOverRows; ++r)
      if (lane == r && blockIdx.x * kOverRows + r < m)
        y[(static_cast<size_t>(blockIdx.x) * kOverRows + r) * d + column] =
            from_float<T>(sums[r] * h_scale[r] * down_scale[column]);
  }
}

/// q = x / scale, rounded, with a scale that was found beforehand.
template <class T>
DEVICE void quantize_all(const T* x, signed char* q, long long count, float scale) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) q[i] = to_int8(to_float(x[i]) * (1.0f / scale));
}

/// The weight as floats, a row per blockIdx.x: w[k,n] times the scale of its column.
template <class T>
DEVICE void widen_weight(const signed char* w, const float* scale, T* wide, int n) {
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  const size_t at = static_cast<size_t>(blockIdx.x) * n + column;
  if (column < n) wide[at] = from_float<T>(w[at] * scale[column]);
}

}  // namespace

// ---- kernels

#define SWIGLU_INT8(type, T, suffix, aligned)                                                         \
  extern "C" __global__ void __launch_bounds__(gemm::kThreads) swiglu_int8_##type##suffix(            \
      const signed char* q, const signed char* gate_t, const signed char* up_t, const float* x_scale, \
      const float* gate_scale, const float* up_scale, T* h, int m, int k, int n) {                    \
    extern __shared__ __align__(128) unsigned char shared[];                                          \
    swiglu_int8<T, aligned>(q, gate_t, up_t, x_scale, gate_scale, up_scale, h, m, k, n, shared);      \
  }

#define KERNELS(type, T)                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                                   \
      quantize_static_##type(const T* x, signed char* q, long long count, float scale) {              \
    quantize_all(x, q, count, scale);                                                                 \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256)                                                   \
      dequantize_weight_##type(const signed char* w, const float* scale, T* wide, int n) {            \
    widen_weight(w, scale, wide, n);                                                                  \
  }                                                                                                   \
  SWIGLU_INT8(type, T, , true)                                                                        \
  SWIGLU_INT8(type, T, _any_size, false)                                                              \
  extern "C" __global__ void __launch_bounds__(32 * kOverWarps)                                       \
      mlp_over_int8_##type(const T* x, const signed char* gate_t, const float* gate_scale,            \
                           const signed char* up_t, const float* up_scale, const signed char* down_t, \
                           const float* down_scale, T* y, int m, int d, int f) {                      \
    extern __shared__ __align__(128) unsigned char shared[];                                          \
    mlp_over_int8(x, gate_t, gate_scale, up_t, up_scale, down_t, down_scale, y, m, d, f, shared);     \
  }

KERNELS(f32, float)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)

/// An element per thread, the weight as it is stored: w[k,n].
extern "C" __global__ void __launch_bounds__(256)
    naive_i8(const signed char* q, const signed char* w, int* acc, int m, int k, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  int sum = 0;
  for (int i = 0; i < k; ++i)
    sum += static_cast<int>(q[static_cast<size_t>(row) * k + i]) * w[static_cast<size_t>(i) * n + column];
  acc[static_cast<size_t>(row) * n + column] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    copy_i8(const signed char* x, signed char* y, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i];
}

/// w_t[n,k] of w[k,n], once per weight.
extern "C" __global__ void __launch_bounds__(256)
    transpose_i8(const signed char* w, signed char* w_t, int k, int n) {
  __shared__ signed char tile[32][33];
  const int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (row0 + i < k && column0 + threadIdx.x < n)
      tile[i][threadIdx.x] = w[static_cast<size_t>(row0 + i) * n + column0 + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8)
    if (column0 + i < n && row0 + threadIdx.x < k)
      w_t[static_cast<size_t>(column0 + i) * k + row0 + threadIdx.x] = tile[threadIdx.x][i];
}
