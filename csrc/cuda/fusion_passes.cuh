// The operators of fusion.cu as the passes that a framework launches, one arithmetic step each: y is written
// to memory and read again by the next pass, rounded to T. One element per thread; a row per blockIdx.x.
#pragma once

#include "common.cuh"

namespace {

constexpr int kRowThreads = 256;

DEVICE float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
DEVICE float silu(float x) { return x / (1.0f + __expf(-x)); }

/// y = f(a) or f(a, b), element by element. b has an element per element, per row or per column.
enum class Operand { kNone, kElement, kRow, kColumn };

template <Operand operand, class T, class Result, class Function>
DEVICE void map_pass(const T* a, const T* b, Result* y, int cols, Function f) {
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= cols) return;
  const size_t at = static_cast<size_t>(blockIdx.x) * cols + column;
  if constexpr (operand == Operand::kNone) {
    y[at] = from_float<Result>(f(to_float(a[at])));
  } else {
    const size_t other = operand == Operand::kElement ? at : operand == Operand::kRow ? blockIdx.x : column;
    y[at] = from_float<Result>(f(to_float(a[at]), to_float(b[other])));
  }
}

/// The block's combination of one value per thread, in all threads. `shared` has a slot per warp.
template <class Operation>
DEVICE float across_block(float value, float* shared, Operation operation) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2)
    value = operation(value, __shfl_xor_sync(kAllLanes, value, distance));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int warp = 1; warp < kRowThreads / 32; ++warp) value = operation(value, shared[warp]);
  __syncthreads();  // the slots may be used again
  return value;
}

struct Add {
  DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  DEVICE float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// y[row] = the combination of a row, times `scale`; a block per row.
template <class T, class Operation>
DEVICE void row_pass(const T* x, T* y, int cols, float start, float scale, Operation operation) {
  __shared__ float shared[kRowThreads / 32];
  const T* row = x + static_cast<size_t>(blockIdx.x) * cols;
  float value = start;
  for (int i = threadIdx.x; i < cols; i += kRowThreads) value = operation(value, to_float(row[i]));
  value = across_block(value, shared, operation);
  if (threadIdx.x == 0) y[blockIdx.x] = from_float<T>(value * scale);
}

}  // namespace

#define UNARY_PASS(name, From, To, parameters, expression)                                               \
  extern "C" __global__ void name(const From* __restrict__ x, To* __restrict__ y, int cols parameters) { \
    map_pass<Operand::kNone>(x, x, y, cols, [=](float v) { return expression; });                        \
  }
#define BINARY_PASS(name, T, operand, expression)                                                      \
  extern "C" __global__ void name(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, \
                                  int cols) {                                                          \
    map_pass<Operand::operand>(a, b, y, cols, [](float v, float w) { return expression; });            \
  }
#define ROW_PASS(name, T, start, scale, operation)                 \
  extern "C" __global__ void __launch_bounds__(kRowThreads)        \
      name(const T* __restrict__ x, T* __restrict__ y, int cols) { \
    row_pass(x, y, cols, start, scale, operation());               \
  }
#define COMMA_EPS , float eps
#define NOTHING

#define PASS_KERNELS(type, T)                       \
  UNARY_PASS(silu_##type, T, T, NOTHING, silu(v))   \
  UNARY_PASS(gelu_##type, T, T, NOTHING, gelu(v))   \
  UNARY_PASS(exp_##type, T, T, NOTHING, __expf(v))  \
  BINARY_PASS(add_##type, T, kElement, v + w)       \
  BINARY_PASS(multiply_##type, T, kElement, v* w)   \
  BINARY_PASS(subtract_rows_##type, T, kRow, v - w) \
  BINARY_PASS(divide_rows_##type, T, kRow, v / w)   \
  BINARY_PASS(scale_cols_##type, T, kColumn, v* w)  \
  BINARY_PASS(add_cols_##type, T, kColumn, v + w)   \
  ROW_PASS(row_sum_##type, T, 0.0f, 1.0f, Add)      \
  ROW_PASS(row_max_##type, T, -INFINITY, 1.0f, Larger)

#define CAST_PASSES(type, T)                          \
  UNARY_PASS(cast_##type##_f32, T, float, NOTHING, v) \
  UNARY_PASS(cast_f32_##type, float, T, NOTHING, v)

// The middle of RMSNorm is in f32 whatever T is, between two casts.
#define RMSNORM_PASSES                                                \
  UNARY_PASS(square_f32, float, float, NOTHING, v* v)                 \
  ROW_PASS(row_mean_f32, float, 0.0f, 1.0f / cols, Add)               \
  UNARY_PASS(rsqrt_eps_f32, float, float, COMMA_EPS, rsqrtf(v + eps)) \
  BINARY_PASS(scale_rows_f32, float, kRow, v* w)
