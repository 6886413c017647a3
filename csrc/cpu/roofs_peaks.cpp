// roofs, arithmetic: the most that a core can compute in a format, by each of its units.
//
// Operands stay in registers; there are enough independent sums to cover the latency of an instruction, and
// nothing else. Each kernel reports the value of its sums, steps * x[0] * x[1], which can be checked, and how
// many operations it did, which depends on the width of its vectors.
#if defined(__AMX_TILE__)
#include "gemm_amx.h"
#endif
#include "simd.h"

#if defined(__AVX512F__)
#define FP_REGISTER "+v"
#elif defined(__SSE2__)
#define FP_REGISTER "+x"
#elif defined(__aarch64__)
#define FP_REGISTER "+w"
#else
#define FP_REGISTER "+m"
#endif

namespace flashperf {
namespace {
using namespace simd;

// The value, of which the compiler knows nothing more: it can't compute equal sums once, join scalars into
// vectors, drop what nobody reads, or move what depends on it out of a loop.
template <class V>
inline V kept(V value) {
  asm volatile("" : FP_REGISTER(value));
  return value;
}

// Two units, each with a latency of 4 or 5 cycles, need 10 sums in flight; with the two operands they fit
// into 16 registers.
constexpr int kSums = 12;

template <class V>
double lanes_of_sum(const V& v) {
  typedef decltype(v[0] + v[0]) Lane;
  double total = 0;
  for (size_t i = 0; i < sizeof(V) / sizeof(Lane); ++i) total += static_cast<double>(v[i]);
  return total;
}

// steps times every sum of `Sums` = step(sum); reports the mean over lanes, each of which `products` end in.
template <int Sums, class V, class Step>
void run_sums(V (&sums)[Sums], int64_t steps, int64_t lanes, int64_t products, Step step, float* y,
              int64_t* operations) {
  for (V& v : sums) v = kept(v);
  for (int64_t s = 0; s < steps; ++s)
#pragma GCC unroll 12
    for (int u = 0; u < Sums; ++u) step(sums[u]);
  double total = 0;
  for (const V& v : sums) total += lanes_of_sum(v);
  *y = static_cast<float>(total / static_cast<double>(Sums * lanes * products));
  *operations = steps * Sums * lanes * products * 2;
}

typedef double vd __attribute__((vector_size(kWidth * 4), aligned(8)));

// A fused multiply-add per sum and step where the hardware has it, else a multiplication and an addition.
template <class V, class Lane>
void fma(const float* x, float* y, int64_t* operations, int64_t steps) {
  constexpr int64_t lanes = sizeof(V) / sizeof(Lane);
  const V a = static_cast<Lane>(x[0]) - V{}, b = static_cast<Lane>(x[1]) - V{};
  V sums[kSums] = {};
  run_sums(sums, steps, lanes, 1, [&](V& sum) { sum = sum * a + b; }, y, operations);
}

// Multiplications and additions that don't depend on each other, as code without fused ones has them.
void simd_f32(const float* x, float* y, int64_t* operations, int64_t steps) {
  const vf a = splat(x[0]), b = splat(x[1]);
  vf sums[kSums / 2] = {}, products[kSums / 2];
  for (int u = 0; u < kSums / 2; ++u) {
    products[u] = kept(a);
    sums[u] = kept(sums[u]);
  }
  for (int64_t s = 0; s < steps; ++s)
#pragma GCC unroll 12
    for (int u = 0; u < kSums / 2; ++u) {
      sums[u] += b;
      products[u] *= a;
    }
  double total = 0;
  for (const vf& v : products) kept(v);
  for (const vf& v : sums) total += lanes_of_sum(v);
  *y = static_cast<float>(total / (kSums / 2 * kWidth));
  *operations = steps * kSums * kWidth;
}

void scalar_f32(const float* x, float* y, int64_t* operations, int64_t steps) {
  const float a = x[0], b = x[1];
  float sums[kSums] = {};
  for (int64_t s = 0; s < steps; ++s)
#pragma GCC unroll 12
    for (int u = 0; u < kSums; ++u) {
      sums[u] = kept(sums[u] * a + b);
    }
  double total = 0;
  for (const float v : sums) total += static_cast<double>(v);
  *y = static_cast<float>(total / kSums);
  *operations = steps * kSums * 2;
}

FP_KERNEL_AS("peak_f32_scalar", scalar_f32, "x[2] -> y[1] operations[1]; steps")
FP_KERNEL_AS("peak_f32_simd", simd_f32, "x[2] -> y[1] operations[1]; steps")
#if defined(__FMA__) || defined(__aarch64__)
FP_KERNEL_AS("peak_f32_fma", (fma<vf, float>), "x[2] -> y[1] operations[1]; steps")
FP_KERNEL_AS("peak_f64_fma", (fma<vd, double>), "x[2] -> y[1] operations[1]; steps")
#endif

#if defined(__AVX2__)
typedef int32_t Ints __attribute__((vector_size(kWidth * 4)));

// Bytes are multiplied into pairs of 16 bits, those into 32 bits, and added: three instructions, before VNNI.
void simd_i8(const float* x, float* y, int64_t* operations, int64_t steps) {
  Ints sums[kSums] = {};
  const auto step = [&](Ints& sum) {
#if defined(__AVX512BW__)
    const __m512i a = kept(_mm512_set1_epi8(static_cast<char>(x[0])));
    const __m512i pairs = _mm512_maddubs_epi16(a, _mm512_set1_epi8(static_cast<char>(x[1])));
    sum += (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#else
    const __m256i a = kept(_mm256_set1_epi8(static_cast<char>(x[0])));
    const __m256i pairs = _mm256_maddubs_epi16(a, _mm256_set1_epi8(static_cast<char>(x[1])));
    sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
  };
  run_sums(sums, steps, kWidth, 4, step, y, operations);
}
FP_KERNEL_AS("peak_i8_simd", simd_i8, "x[2] -> y[1] operations[1]; steps")
#endif

#if defined(__AVX512VNNI__)
typedef int32_t Ints512 __attribute__((vector_size(64)));
void vnni_i8(const float* x, float* y, int64_t* operations, int64_t steps) {
  const __m512i a = _mm512_set1_epi8(static_cast<char>(x[0])), b = _mm512_set1_epi8(static_cast<char>(x[1]));
  Ints512 sums[kSums] = {};
  run_sums(
      sums, steps, 16, 4, [&](Ints512& sum) { sum = (Ints512)_mm512_dpbusd_epi32((__m512i)sum, a, b); }, y,
      operations);
}
FP_KERNEL_AS("peak_i8_vnni", vnni_i8, "x[2] -> y[1] operations[1]; steps")
#endif

#if defined(__AVX512BF16__)
void dot_bf16(const float* x, float* y, int64_t* operations, int64_t steps) {
  const __m512 wide_a = _mm512_set1_ps(x[0]), wide_b = _mm512_set1_ps(x[1]);
  const __m512bh a = _mm512_cvtne2ps_pbh(wide_a, wide_a), b = _mm512_cvtne2ps_pbh(wide_b, wide_b);
  vf sums[kSums] = {};
  run_sums(
      sums, steps, 16, 2, [&](vf& sum) { sum = vf(_mm512_dpbf16_ps((__m512)sum, a, b)); }, y, operations);
}
FP_KERNEL_AS("peak_bf16_dot", dot_bf16, "x[2] -> y[1] operations[1]; steps")
#endif

#if defined(__AMX_TILE__)
// Four sums of 16 by 16: an instruction takes 16 cycles, its result 52.
template <class T, class Sum>
void tiles(T a, T b, float* y, int64_t* operations, int64_t steps) {
  constexpr int64_t depth = 64 / sizeof(T), sums = 4;
  T left[16 * depth], right[16 * depth];
  for (int64_t i = 0; i < 16 * depth; ++i) left[i] = a, right[i] = b;
  Sum out[16 * 16];
  const gemm::amx::Session session;
  gemm::amx::memory_barrier();  // GCC 12's tile intrinsics don't say that they read memory
  _tile_loadd(4, left, 64);
  _tile_loadd(5, right, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (std::is_same_v<T, bf16>) {
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 5);
      _tile_dpbf16ps(2, 4, 5);
      _tile_dpbf16ps(3, 4, 5);
    } else {
      _tile_dpbssd(0, 4, 5);
      _tile_dpbssd(1, 4, 5);
      _tile_dpbssd(2, 4, 5);
      _tile_dpbssd(3, 4, 5);
    }
  }
  _tile_stored(3, out, 64);
  gemm::amx::memory_barrier();
  double total = 0;
  for (const Sum v : out) total += static_cast<double>(v);
  *y = static_cast<float>(total / static_cast<double>(16 * 16 * depth));
  *operations = steps * sums * 16 * 16 * depth * 2;
}

void amx_bf16(const float* x, float* y, int64_t* operations, int64_t steps) {
  tiles<bf16, float>(from_float<bf16>(x[0]), from_float<bf16>(x[1]), y, operations, steps);
}
void amx_i8(const float* x, float* y, int64_t* operations, int64_t steps) {
  tiles<int8_t, int32_t>(static_cast<int8_t>(x[0]), static_cast<int8_t>(x[1]), y, operations, steps);
}
FP_KERNEL_AS("peak_bf16_amx", amx_bf16, "x[2] -> y[1] operations[1]; steps")
FP_KERNEL_AS("peak_i8_amx", amx_i8, "x[2] -> y[1] operations[1]; steps")
#endif

}  // namespace
}  // namespace flashperf
