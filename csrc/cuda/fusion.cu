// fusion: bias + GELU, residual + RMSNorm, softmax and SwiGLU, in one kernel each and in the passes of a
// framework.
//
// These operators do a few flops per byte, so their time is the bytes they move. A framework without fusion
// launches a kernel per arithmetic step, each of which reads its operands from device memory and writes its
// result back: fusion_passes.cuh. Fused, an operand is read once and the result written once, 16 bytes per
// access, and a row's sum or maximum travels between the lanes of a warp by shuffles.
//   x[rows,cols], y[rows,cols] row-major. *_any_size: rows that aren't a multiple of 16 bytes long. A row
//   that is reduced stays in the registers of its block, so it has at most kMaxPacks * kRowThreads * 16
//   bytes.
#include "fusion_passes.cuh"

namespace {

constexpr int kMaxPacks = 8;

// ---- fused
// ---------------------------------------------------------------------------------------------------

/// Pack `i` of a row of `cols` elements, `fill` beyond its end; one access where the row is aligned.
template <class T, bool aligned>
DEVICE Pack<T> load_pack(const T* row, int i, int cols, float fill = 0.0f) {
  if constexpr (aligned) {
    if (i * Pack<T>::size < cols) return reinterpret_cast<const Pack<T>*>(row)[i];
  }
  Pack<T> pack;
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) {
    const int at = i * Pack<T>::size + j;
    pack.at[j] = at < cols && !aligned ? row[at] : from_float<T>(fill);
  }
  return pack;
}

template <class T, bool aligned>
DEVICE void store_pack(T* row, int i, int cols, const Pack<T>& pack) {
  if constexpr (aligned) {
    if (i * Pack<T>::size < cols) reinterpret_cast<Pack<T>*>(row)[i] = pack;
  } else {
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j)
      if (i * Pack<T>::size + j < cols) row[i * Pack<T>::size + j] = pack.at[j];
  }
}

/// y = f(a, b) of the block's part of a row. Row r of b starts at r * b_stride: 0 repeats one row.
template <class T, bool aligned, class Function>
DEVICE void fused_map(const T* a, const T* b, T* y, int cols, int b_stride, Function f) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i * Pack<T>::size >= cols) return;
  const size_t row = static_cast<size_t>(blockIdx.x) * cols;
  Pack<T> pack = load_pack<T, aligned>(a + row, i, cols);
  const Pack<T> other = load_pack<T, aligned>(b + static_cast<size_t>(blockIdx.x) * b_stride, i, cols);
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j)
    pack.at[j] = from_float<T>(f(to_float(pack.at[j]), to_float(other.at[j])));
  store_pack<T, aligned>(y + row, i, cols, pack);
}

/// x += delta; y = x / sqrt(mean(x^2) + eps) * weight. A block per row, which stays in registers between the
/// two.
template <class T, bool aligned>
DEVICE void fused_residual_rmsnorm(const T* x, const T* delta, const T* weight, T* total, T* y, int cols,
                                   float eps) {
  __shared__ float shared[kRowThreads / 32];
  const size_t row = static_cast<size_t>(blockIdx.x) * cols;
  Pack<T> kept[kMaxPacks];
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int i = p * kRowThreads + threadIdx.x;
    if (i * Pack<T>::size >= cols) break;
    kept[p] = load_pack<T, aligned>(x + row, i, cols);
    const Pack<T> more = load_pack<T, aligned>(delta + row, i, cols);
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j) {
      kept[p].at[j] = from_float<T>(to_float(kept[p].at[j]) + to_float(more.at[j]));
      squares += to_float(kept[p].at[j]) * to_float(kept[p].at[j]);
    }
    store_pack<T, aligned>(total + row, i, cols, kept[p]);
  }
  const float scale = rsqrtf(across_block(squares, shared, Add()) / cols + eps);
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int i = p * kRowThreads + threadIdx.x;
    if (i * Pack<T>::size >= cols) break;
    const Pack<T> weights = load_pack<T, aligned>(weight, i, cols);
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j)
      kept[p].at[j] = from_float<T>(to_float(kept[p].at[j]) * scale * to_float(weights.at[j]));
    store_pack<T, aligned>(y + row, i, cols, kept[p]);
  }
}

/// y = softmax of each row: a block per row, which is read once and stays in registers.
template <class T, bool aligned>
DEVICE void fused_softmax(const T* x, T* y, int cols) {
  __shared__ float shared[kRowThreads / 32];
  const size_t row = static_cast<size_t>(blockIdx.x) * cols;
  Pack<T> kept[kMaxPacks];
  float peak = -INFINITY, total = 0.0f;
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int i = p * kRowThreads + threadIdx.x;
    if (i * Pack<T>::size >= cols) break;
    kept[p] = load_pack<T, aligned>(x + row, i, cols, -INFINITY);
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j) peak = fmaxf(peak, to_float(kept[p].at[j]));
  }
  peak = across_block(peak, shared, Larger());
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    if ((p * kRowThreads + threadIdx.x) * Pack<T>::size >= cols) break;
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j) total += __expf(to_float(kept[p].at[j]) - peak);
  }
  const float scale = 1.0f / across_block(total, shared, Add());
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int i = p * kRowThreads + threadIdx.x;
    if (i * Pack<T>::size >= cols) break;
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j)
      kept[p].at[j] = from_float<T>(__expf(to_float(kept[p].at[j]) - peak) * scale);
    store_pack<T, aligned>(y + row, i, cols, kept[p]);
  }
}

}  // namespace

// ---- kernels
// -------------------------------------------------------------------------------------------------

// One block per SM is enough: without the 1 the compiler aims at more of them and spills the row to memory.
#define FUSED_KERNELS(type, T, suffix, aligned)                                                       \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 1) fused_bias_gelu_##type##suffix(        \
      const T* __restrict__ x, const T* __restrict__ bias, T* __restrict__ y, int cols) {             \
    fused_map<T, aligned>(x, bias, y, cols, 0, [](float a, float b) { return gelu(a + b); });         \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 1) fused_swiglu_##type##suffix(           \
      const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ y, int cols) {            \
    fused_map<T, aligned>(gate, up, y, cols, cols, [](float g, float u) { return silu(g) * u; });     \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 1) fused_residual_rmsnorm_##type##suffix( \
      const T* __restrict__ x, const T* __restrict__ delta, const T* __restrict__ weight,             \
      T* __restrict__ total, T* __restrict__ y, int cols, float eps) {                                \
    fused_residual_rmsnorm<T, aligned>(x, delta, weight, total, y, cols, eps);                        \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 1)                                        \
      fused_softmax_##type##suffix(const T* __restrict__ x, T* __restrict__ y, int cols) {            \
    fused_softmax<T, aligned>(x, y, cols);                                                            \
  }

FUSED_KERNELS(f32, float, , true)
FUSED_KERNELS(f32, float, _any_size, false)
FUSED_KERNELS(f16, __half, , true)
FUSED_KERNELS(f16, __half, _any_size, false)
FUSED_KERNELS(bf16, __nv_bfloat16, , true)
FUSED_KERNELS(bf16, __nv_bfloat16, _any_size, false)

PASS_KERNELS(f32, float)
PASS_KERNELS(f16, __half)
PASS_KERNELS(bf16, __nv_bfloat16)
CAST_PASSES(f16, __half)
CAST_PASSES(bf16, __nv_bfloat16)
RMSNORM_PASSES
