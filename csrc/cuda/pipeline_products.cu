// pipeline_products: the products of a step that no mechanism has: for few rows, and with an untuned tile in
// every type, and on INT8 with SwiGLU as the epilogue or with the whole MLP in one kernel.
//
// A decoding step multiplies one row or a few: the weight is read once and bounds the time, so a block takes
// a strip of columns and all of k, with many loads in flight, where a tile of 128 rows would be empty.
//   x[m,k] w[k,n] -> y[m,n]; INT8 weights transposed, w_t[n,k].
#include "gemm_mma.cuh"

DEVICE float to_float(signed char x) { return x; }  // beside those of common.cuh: inside it would hide them

namespace {

DEVICE float silu(float x) { return x / (1.0f + __expf(-x)); }

// ---- untuned: a 16 x 16 tile in shared memory, an element of y per thread
// ------------------------------------

template <class Sum, class T>
DEVICE Sum factor(T x) {
  if constexpr (__is_same(Sum, int)) return x;
  else return to_float(x);
}

template <class Sum, class T, class Out>
DEVICE void untuned_product(const T* x, const T* w, Out* y, int m, int k, int n) {
  constexpr int kTile = 16;
  __shared__ Sum left[kTile][kTile], right[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  Sum sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const int i = k0 + threadIdx.x, j = k0 + threadIdx.y;
    left[threadIdx.y][threadIdx.x] =
        row < m && i < k ? factor<Sum>(x[static_cast<size_t>(row) * k + i]) : Sum(0);
    right[threadIdx.y][threadIdx.x] =
        j < k && column < n ? factor<Sum>(w[static_cast<size_t>(j) * n + column]) : Sum(0);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kTile; ++step) sum += left[threadIdx.y][step] * right[step][threadIdx.x];
    __syncthreads();
  }
  if (row >= m || column >= n) return;
  if constexpr (__is_same(Sum, int)) y[static_cast<size_t>(row) * n + column] = sum;
  else y[static_cast<size_t>(row) * n + column] = from_float<Out>(sum);
}

// ---- few rows: 4 lanes side by side, 64 rows of the weight at a time
// -----------------------------------------

constexpr int kFewThreads = 256, kLanes = 4, kGroups = kFewThreads / kLanes;

template <class T, int count>
struct alignas(count * sizeof(T)) Several {
  T at[count];
};

/// sums[r][j] of all warps, for column j of the block's strip, in the threads below rows * kLanes * wide.
template <int rows, int wide>
DEVICE float strip_sum(float (&sums)[rows][wide], float* shared) {
  constexpr int kStrip = rows * kLanes * wide;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int j = 0; j < wide; ++j) {
#pragma unroll
      for (int distance = 16; distance >= kLanes; distance /= 2)
        sums[r][j] += __shfl_xor_sync(kAllLanes, sums[r][j], distance);
      if (lane < kLanes) shared[warp * kStrip + (r * kLanes + lane) * wide + j] = sums[r][j];
    }
  __syncthreads();
  float total = 0.0f;
  if (threadIdx.x < kStrip)
    for (int w = 0; w < kFewThreads / 32; ++w) total += shared[w * kStrip + threadIdx.x];
  __syncthreads();  // the strip may be used again
  return total;
}

/// The products of a strip of one weight or two, added up by each thread over its rows of k. A block per 8
/// rows of x: where there are more, each block of them reads the weight again.
template <class T, class W, int rows, int wide, int weights>
DEVICE void few_rows(const T* x, const W* const (&w)[weights], float (&sums)[weights][rows][wide], int m,
                     int k, int n) {
  using Wide = Several<W, wide>;
  const int column = (blockIdx.x * kLanes + threadIdx.x % kLanes) * wide, row0 = blockIdx.y * rows;
  if (column >= n) return;
#pragma unroll 4
  for (int i = threadIdx.x / kLanes; i < k; i += kGroups) {
    Wide values[weights];
#pragma unroll
    for (int v = 0; v < weights; ++v)
      values[v] = *reinterpret_cast<const Wide*>(w[v] + static_cast<size_t>(i) * n + column);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float left = row0 + r < m ? to_float(x[static_cast<size_t>(row0 + r) * k + i]) : 0.0f;
#pragma unroll
      for (int v = 0; v < weights; ++v)
#pragma unroll
        for (int j = 0; j < wide; ++j) sums[v][r][j] += left * to_float(values[v].at[j]);
    }
  }
}

/// Where this thread's element of the strip lies in y.
template <int rows, int wide>
struct Place {
  int row = blockIdx.y * rows + threadIdx.x / (kLanes * wide);
  int column = blockIdx.x * kLanes * wide + threadIdx.x % (kLanes * wide);

  DEVICE bool inside(int m, int n) const {
    return threadIdx.x < rows * kLanes * wide && row < m && column < n;
  }
  template <class T>
  DEVICE void store(T* y, int n, float value) const {
    y[static_cast<size_t>(row) * n + column] = from_float<T>(value);
  }
};

template <class T, class W, int rows, int wide>
DEVICE void few_product(const T* x, const W* w, const float* scale, T* y, int m, int k, int n) {
  __shared__ float shared[kFewThreads / 32 * rows * kLanes * wide];
  float sums[1][rows][wide] = {};
  few_rows<T, W, rows, wide, 1>(x, {w}, sums, m, k, n);
  const float value = strip_sum<rows, wide>(sums[0], shared);
  const Place<rows, wide> place;
  if (place.inside(m, n)) place.store(y, n, scale ? value * scale[place.column] : value);
}

template <class T, class W, int rows, int wide>
DEVICE void few_swiglu(const T* x, const W* gate, const float* gate_scale, const W* up, const float* up_scale,
                       T* h, int m, int k, int n) {
  __shared__ float shared[kFewThreads / 32 * rows * kLanes * wide];
  float sums[2][rows][wide] = {};
  few_rows<T, W, rows, wide, 2>(x, {gate, up}, sums, m, k, n);
  float g = strip_sum<rows, wide>(sums[0], shared), u = strip_sum<rows, wide>(sums[1], shared);
  const Place<rows, wide> place;
  if (!place.inside(m, n)) return;
  if (gate_scale) g *= gate_scale[place.column], u *= up_scale[place.column];
  place.store(h, n, silu(g) * u);
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define FEW_ROWS(type, T, rows, bytes)                                                                \
  extern "C" __global__ void __launch_bounds__(kFewThreads)                                           \
      few_##rows##_##type(const T* x, const T* w, T* y, int m, int k, int n) {                        \
    few_product<T, T, rows, bytes / sizeof(T)>(x, w, nullptr, y, m, k, n);                            \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(kFewThreads)                                           \
      few_swiglu_##rows##_##type(const T* x, const T* gate, const T* up, T* h, int m, int k, int n) { \
    few_swiglu<T, T, rows, bytes / sizeof(T)>(x, gate, nullptr, up, nullptr, h, m, k, n);             \
  }

// The weight in INT8 with a scale per column, the activations as they are: 8 columns per access.
#define WEIGHT_ONLY(type, T, rows)                                                              \
  extern "C" __global__ void __launch_bounds__(kFewThreads) weight_only_##rows##_##type(        \
      const T* x, const signed char* w, const float* scale, T* y, int m, int k, int n) {        \
    few_product<T, signed char, rows, 8>(x, w, scale, y, m, k, n);                              \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(kFewThreads) weight_only_swiglu_##rows##_##type( \
      const T* x, const signed char* gate, const float* gate_scale, const signed char* up,      \
      const float* up_scale, T* h, int m, int k, int n) {                                       \
    few_swiglu<T, signed char, rows, 8>(x, gate, gate_scale, up, up_scale, h, m, k, n);         \
  }

#define KERNELS(type, T)                                                  \
  extern "C" __global__ void __launch_bounds__(256)                       \
      untuned_##type(const T* x, const T* w, T* y, int m, int k, int n) { \
    untuned_product<float>(x, w, y, m, k, n);                             \
  }                                                                       \
  FEW_ROWS(type, T, 1, 16)                                                \
  FEW_ROWS(type, T, 8, 8)                                                 \
  WEIGHT_ONLY(type, T, 1)                                                 \
  WEIGHT_ONLY(type, T, 4)

KERNELS(f32, float)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)

extern "C" __global__ void __launch_bounds__(256)
    untuned_i8(const signed char* q, const signed char* w, int* acc, int m, int k, int n) {
  untuned_product<int>(q, w, acc, m, k, n);
}
