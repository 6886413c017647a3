// roofs: what a GPU can do at best: bytes per second from shared memory, L2 and device memory, operations per
// second on the FMA units and on Tensor Cores.
//
// Streams move 16 bytes per access. Those over global memory go past L1, and in every pass a block takes the
// part of another one, so that no byte is found nearer than in L2. Peaks keep their operands in registers and
// many sums in flight. All results are exact in integers: a kernel that skipped work would be found out.
// Tensor Cores are driven by mma.sync, which on Hopper and later reaches less than wgmma and tcgen05 would.
//   groups: float4 per array, a multiple of kPerBlock (global) or of the block (shared, a power of two).
#include "common.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // independent 16-byte loads per thread: latency times bandwidth needs many
constexpr int kPerBlock = kThreads * kInFlight;

DEVICE float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

DEVICE float4 scaled_sum(const float4& a, const float4& b, float factor) {
  return make_float4(a.x + factor * b.x, a.y + factor * b.y, a.z + factor * b.z, a.w + factor * b.w);
}

/// The sum over the warp of all four, written by its first lane to its place in `sums`.
DEVICE void write_sum(float* sums, const float4& sum) {
  const float total = warp_sum(sum.x + sum.y + sum.z + sum.w);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread % 32 == 0) sums[thread / 32] = total;
}

/// Calls visit(first group of this thread) for every part of the block; its groups are kThreads apart.
template <class Visit>
DEVICE void each_part(long long groups, int passes, Visit visit) {
  for (int pass = 0; pass < passes; ++pass) {
    const long long part = (blockIdx.x + static_cast<unsigned>(pass)) % gridDim.x;
    for (long long at = part * kPerBlock; at < groups; at += static_cast<long long>(gridDim.x) * kPerBlock)
      visit(at + threadIdx.x);
  }
}

DEVICE void load_groups(float4 (&groups)[kInFlight], const float4* x) {
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) groups[i] = __ldcg(x + i * kThreads);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    stream_load(const float4* __restrict__ x, float* __restrict__ sums, long long groups, int passes) {
  float4 sum = {};
  each_part(groups, passes, [&](long long at) {
    float4 loaded[kInFlight];
    load_groups(loaded, x + at);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum = sum_of(sum, loaded[i]);
  });
  write_sum(sums, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    stream_copy(const float4* __restrict__ x, float4* __restrict__ y, long long groups, int passes) {
  each_part(groups, passes, [&](long long at) {
    float4 loaded[kInFlight];
    load_groups(loaded, x + at);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) __stcg(y + at + i * kThreads, loaded[i]);
  });
}

/// y = x + factor z
extern "C" __global__ void __launch_bounds__(kThreads)
    stream_triad(const float4* __restrict__ x, const float4* __restrict__ z, float4* __restrict__ y,
                 float factor, long long groups, int passes) {
  each_part(groups, passes, [&](long long at) {
    float4 a[kInFlight], b[kInFlight];
    load_groups(a, x + at);
    load_groups(b, z + at);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) __stcg(y + at + i * kThreads, scaled_sum(a[i], b[i], factor));
  });
}

// ---- shared memory: every block walks through arrays of its own, again and again

namespace {

DEVICE void fill_shared(float4* target, const float4* source, int groups) {
  for (int i = threadIdx.x; i < groups; i += kThreads) target[i] = source[i];
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    shared_load(const float4* __restrict__ x, float* __restrict__ sums, int groups, int steps) {
  extern __shared__ __align__(16) unsigned char shared[];
  float4* const original = reinterpret_cast<float4*>(shared);
  fill_shared(original, x, groups);
  __syncthreads();
  float4 sum = {};
#pragma unroll 8
  for (int step = 0; step < steps; ++step)
    sum = sum_of(sum, original[(step * kThreads + threadIdx.x) & (groups - 1)]);
  write_sum(sums, sum);
}

/// A step moves a group from the first half of the shared array to the second; y is the second half of block
/// 0.
extern "C" __global__ void __launch_bounds__(kThreads)
    shared_copy(const float4* __restrict__ x, float4* __restrict__ y, int groups, int steps) {
  extern __shared__ __align__(16) unsigned char shared[];
  float4* const original = reinterpret_cast<float4*>(shared);
  float4* const copied = original + groups;
  fill_shared(original, x, groups);
  __syncthreads();
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const int at = (step * kThreads + threadIdx.x) & (groups - 1);
    copied[at] = original[at];
  }
  __syncthreads();
  if (blockIdx.x == 0) fill_shared(y, copied, groups);
}

/// As shared_copy with y = x + factor z.
extern "C" __global__ void __launch_bounds__(kThreads)
    shared_triad(const float4* __restrict__ x, const float4* __restrict__ z, float4* __restrict__ y,
                 float factor, int groups, int steps) {
  extern __shared__ __align__(16) unsigned char shared[];
  float4* const original = reinterpret_cast<float4*>(shared);
  float4 *const other = original + groups, *const result = other + groups;
  fill_shared(original, x, groups);
  fill_shared(other, z, groups);
  __syncthreads();
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const int at = (step * kThreads + threadIdx.x) & (groups - 1);
    result[at] = scaled_sum(original[at], other[at], factor);
  }
  __syncthreads();
  if (blockIdx.x == 0) fill_shared(y, result, groups);
}

// ---- arithmetic ------------------------------------------------------------------------------------------

/// sums[thread] = steps (x[1] + ... + x[8]), each x[i] added `steps` times by an FMA with x[0] = 1, which
/// only the caller knows. The intrinsic keeps the product in the loop: apart, it would be computed once.
extern "C" __global__ void __launch_bounds__(kThreads)
    peak_f32_fma(const float* __restrict__ x, float* __restrict__ sums, int steps) {
  constexpr int kSums = 8;  // by 8 warps per scheduler they hide the latency of an FMA many times over
  float sum[kSums] = {}, added[kSums];
  const float one = x[0];
#pragma unroll
  for (int i = 0; i < kSums; ++i) added[i] = x[1 + i];
#pragma unroll 16
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = __fmaf_rn(sum[i], one, added[i]);
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kSums; ++i) total += sum[i];
  sums[blockIdx.x * kThreads + threadIdx.x] = total;
}

namespace {

constexpr int kTilesA = 2, kTilesB = 4;
constexpr int kRowWords = 8;  // words of a row of A or a column of B: K is 32 bytes long in every format

/// y[warp] = steps (sum over all pairs of A_i B_j), 16 x 8. a: kTilesA x 16 rows, b: kTilesB x 8 columns.
template <class Sum, class Multiply>
DEVICE void multiply_again(const unsigned* a, const unsigned* b, Sum* y, int steps, Multiply multiply) {
  const int lane = threadIdx.x % 32, group = lane / 4, word = lane % 4;
  unsigned left[kTilesA][4], right[kTilesB][2];
#pragma unroll
  for (int i = 0; i < kTilesA; ++i)
#pragma unroll
    for (int part = 0; part < 4; ++part)
      left[i][part] = a[(16 * i + group + part % 2 * 8) * kRowWords + word + part / 2 * 4];
#pragma unroll
  for (int j = 0; j < kTilesB; ++j)
#pragma unroll
    for (int part = 0; part < 2; ++part) right[j][part] = b[(8 * j + group) * kRowWords + word + part * 4];
  Sum sum[kTilesA][kTilesB][4] = {};
#pragma unroll 4
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int i = 0; i < kTilesA; ++i)
#pragma unroll
      for (int j = 0; j < kTilesB; ++j) multiply(sum[i][j], left[i], right[j]);
  Sum* const tile = y + (blockIdx.x * kThreads + threadIdx.x) / 32 * 128;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Sum total = 0;
#pragma unroll
    for (int i = 0; i < kTilesA; ++i)
#pragma unroll
      for (int j = 0; j < kTilesB; ++j) total += sum[i][j][part];
    tile[(group + part / 2 * 8) * 8 + 2 * word + part % 2] = total;
  }
}

}  // namespace

#define PEAK_MMA(format, Sum, mma)                                                                      \
  extern "C" __global__ void __launch_bounds__(kThreads) peak_##format##_mma(                           \
      const unsigned* __restrict__ a, const unsigned* __restrict__ b, Sum* __restrict__ y, int steps) { \
    multiply_again(a, b, y, steps, [](auto& sum, auto& left, auto& right) { mma(sum, left, right); });  \
  }
PEAK_MMA(tf32, float, mma_tf32)
PEAK_MMA(f16, float, mma_f16)
PEAK_MMA(bf16, float, mma_bf16)
PEAK_MMA(i8, int, mma_s8)
#undef PEAK_MMA

// ---- the cost of a launch --------------------------------------------------------------------------------

extern "C" __global__ void empty_launch() {}
