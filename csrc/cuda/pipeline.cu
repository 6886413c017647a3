// pipeline: what a step of the language model launches beside the mechanisms' own kernels. Rows of its state,
// norms, and the passes of split operators with their intermediate results in the storage type.
//
// What changes from step to step (tokens, slots, positions) is read from device memory, so that a captured
// graph of these kernels can be replayed. A row that names neither slot nor position rightly writes nothing
// outside its own output. The attention and the products of the pipeline: pipeline_attention.cu,
// _products.cu.
#include "fusion_passes.cuh"

namespace {

// ---- rows
// ----------------------------------------------------------------------------------------------------

/// y[i,:] = x[index[i],:], an index outside x taken as the nearest row of it. A row per blockIdx.x.
template <class T>
DEVICE void take_rows(const T* x, const int* index, T* y, int m, int d) {
  const T* from = x + static_cast<size_t>(min(max(index[blockIdx.x], 0), m - 1)) * d;
  T* to = y + static_cast<size_t>(blockIdx.x) * d;
  for (int i = threadIdx.x; i < d; i += blockDim.x) to[i] = from[i];
}

/// The pair (a, b) turned by the angle: a cos - b sin, b cos + a sin.
template <class T>
DEVICE void rotate(const T* x, T* y, int half, float cos, float sin) {
  const float a = to_float(x[0]), b = to_float(x[half]);
  y[0] = from_float<T>(a * cos - b * sin);
  y[half] = from_float<T>(b * cos + a * sin);
}

/// Rotate-half RoPE of q and k, and the append of k and v to the cache, of one row and head per block. A
/// position outside the tables gives q = 0; such a row, or one whose slot isn't in the cache, appends
/// nothing.
///   qkv[m,3,heads,e], cos and sin [t,e/2], caches [slots,heads,t,e], q[m,heads,e]
template <class T>
DEVICE void rope_append(const T* qkv, const float* cos, const float* sin, const int* slot,
                        const int* position, T* k_cache, T* v_cache, T* q, int slots, int heads, int t,
                        int e) {
  const int row = blockIdx.x, head = blockIdx.y, half = e / 2, s = slot[row], p = position[row];
  const size_t d = static_cast<size_t>(heads) * e;
  const T* mine = qkv + row * 3 * d + static_cast<size_t>(head) * e;
  T* turned = q + row * d + static_cast<size_t>(head) * e;
  const bool known = p >= 0 && p < t, cached = known && s >= 0 && s < slots;
  const size_t at = cached ? ((static_cast<size_t>(s) * heads + head) * t + p) * e : 0;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const float c = known ? cos[static_cast<size_t>(p) * half + i] : 0.0f;
    const float n = known ? sin[static_cast<size_t>(p) * half + i] : 0.0f;
    rotate(mine + i, turned + i, half, c, n);
    if (!cached) continue;
    rotate(mine + d + i, k_cache + at + i, half, c, n);
    v_cache[at + i] = mine[2 * d + i];
    v_cache[at + half + i] = mine[2 * d + half + i];
  }
}

// ---- norms
// ---------------------------------------------------------------------------------------------------

template <class T, int count>
struct alignas(count * sizeof(T)) Several {
  T at[count];
};

/// y = x / sqrt(mean(x^2) + eps) * weight, `wide` elements per access; with `add`, x += delta before. A block
/// per row. The second reading of the row comes from L1, where the first, or the sum, has put it.
template <class T, int wide, bool add>
DEVICE void rmsnorm(T* x, const T* delta, const T* weight, T* y, int cols, float eps) {
  using Wide = Several<T, wide>;
  __shared__ float shared[kRowThreads / 32];
  const size_t row = static_cast<size_t>(blockIdx.x) * cols;
  float squares = 0.0f;
  for (int i = threadIdx.x * wide; i < cols; i += kRowThreads * wide) {
    Wide values = *reinterpret_cast<const Wide*>(x + row + i);
    if constexpr (add) {
      const Wide more = *reinterpret_cast<const Wide*>(delta + row + i);
#pragma unroll
      for (int j = 0; j < wide; ++j)
        values.at[j] = from_float<T>(to_float(values.at[j]) + to_float(more.at[j]));
      *reinterpret_cast<Wide*>(x + row + i) = values;
    }
#pragma unroll
    for (int j = 0; j < wide; ++j) squares += to_float(values.at[j]) * to_float(values.at[j]);
  }
  const float scale = rsqrtf(across_block(squares, shared, Add()) / cols + eps);
  for (int i = threadIdx.x * wide; i < cols; i += kRowThreads * wide) {
    Wide values = *reinterpret_cast<const Wide*>(x + row + i);
    const Wide weights = *reinterpret_cast<const Wide*>(weight + i);
#pragma unroll
    for (int j = 0; j < wide; ++j)
      values.at[j] = from_float<T>(to_float(values.at[j]) * scale * to_float(weights.at[j]));
    *reinterpret_cast<Wide*>(y + row + i) = values;
  }
}

/// y[i] = f(a[i], b[i]) over an array of any length; y may be a or b.
template <class T, class Function>
DEVICE void flat_pass(const T* a, const T* b, T* y, long long count, Function f) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define NORMS(type, T, suffix, wide)                                                                      \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                               \
      rmsnorm_##type##suffix(const T* x, const T* weight, T* y, int cols, float eps) {                    \
    rmsnorm<T, wide, false>(const_cast<T*>(x), nullptr, weight, y, cols, eps);                            \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                               \
      residual_rmsnorm_##type##suffix(T* x, const T* delta, const T* weight, T* y, int cols, float eps) { \
    rmsnorm<T, wide, true>(x, delta, weight, y, cols, eps);                                               \
  }

#define FLAT_UNARY(name, T, expression)                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads) name(const T* x, T* y, long long count) { \
    flat_pass(x, x, y, count, [](float v, float) { return expression; });                             \
  }
#define FLAT_BINARY(name, T, expression)                                    \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                 \
      name(const T* a, const T* b, T* y, long long count) {                 \
    flat_pass(a, b, y, count, [](float v, float w) { return expression; }); \
  }

#define KERNELS(type, T)                                                                                \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                             \
      take_rows_##type(const T* x, const int* index, T* y, int m, int d) {                              \
    take_rows(x, index, y, m, d);                                                                       \
  }                                                                                                     \
  extern "C" __global__ void rope_append_##type(const T* qkv, const float* cos, const float* sin,       \
                                                const int* slot, const int* position, T* k_cache,       \
                                                T* v_cache, T* q, int slots, int heads, int t, int e) { \
    rope_append(qkv, cos, sin, slot, position, k_cache, v_cache, q, slots, heads, t, e);                \
  }                                                                                                     \
  NORMS(type, T, , 16 / sizeof(T))                                                                      \
  NORMS(type, T, _any_size, 1)                                                                          \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                             \
      accumulate_##type(T* x, const T* delta, long long count) {                                        \
    flat_pass(x, delta, x, count, [](float v, float w) { return v + w; });                              \
  }                                                                                                     \
  FLAT_UNARY(copy_##type, T, v)                                                                         \
  FLAT_UNARY(square_##type, T, v* v)                                                                    \
  FLAT_UNARY(silu_##type, T, silu(v))                                                                   \
  FLAT_BINARY(multiply_##type, T, v* w)                                                                 \
  FLAT_BINARY(swiglu_##type, T, silu(v) * w)                                                            \
  ROW_PASS(row_mean_##type, T, 0.0f, 1.0f / cols, Add)                                                  \
  UNARY_PASS(rsqrt_eps_##type, T, T, COMMA_EPS, rsqrtf(v + eps))                                        \
  BINARY_PASS(scale_rows_##type, T, kRow, v* w)                                                         \
  BINARY_PASS(scale_cols_##type, T, kColumn, v* w)

KERNELS(f32, float)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
