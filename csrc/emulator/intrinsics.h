// Device functions of one thread: cached loads and stores, bit and float intrinsics, dp4a.
// The fast ones (__expf, __fdividef) are computed exactly: their hardware error is not modelled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "narrow.h"
#include "scheduler.h"

using std::max;
using std::min;
inline unsigned max(unsigned a, int b) { return std::max(a, static_cast<unsigned>(b)); }
inline unsigned min(unsigned a, int b) { return std::min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return std::max(static_cast<unsigned>(a), b); }
inline unsigned min(int a, unsigned b) { return std::min(static_cast<unsigned>(a), b); }

// ---- memory ----------------------------------------------------------------------------------------------

#define FLASHPERF_LOAD(name) \
  template <class T>         \
  T name(const T* address) { \
    return *address;         \
  }
FLASHPERF_LOAD(__ldg)
FLASHPERF_LOAD(__ldca)
FLASHPERF_LOAD(__ldcg)
FLASHPERF_LOAD(__ldcs)
FLASHPERF_LOAD(__ldlu)
FLASHPERF_LOAD(__ldcv)
#undef FLASHPERF_LOAD
#define FLASHPERF_STORE(name)      \
  template <class T>               \
  void name(T* address, T value) { \
    *address = value;              \
  }
FLASHPERF_STORE(__stwb)
FLASHPERF_STORE(__stcg)
FLASHPERF_STORE(__stcs)
FLASHPERF_STORE(__stwt)
#undef FLASHPERF_STORE

// ---- float -----------------------------------------------------------------------------------------------

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // NaN gives 0

inline int __float_as_int(float x) { return static_cast<int>(flashperf::emulator::float_bits(x)); }
inline unsigned __float_as_uint(float x) { return flashperf::emulator::float_bits(x); }
inline float __int_as_float(int x) { return flashperf::emulator::float_from_bits(static_cast<unsigned>(x)); }
inline float __uint_as_float(unsigned x) { return flashperf::emulator::float_from_bits(x); }

namespace flashperf::emulator {
/// CUDA saturates where C++ leaves the result undefined; NaN gives 0.
inline int to_int(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x < -2147483648.0f ? -2147483647 - 1 : static_cast<int>(x);
}
}  // namespace flashperf::emulator

inline int __float2int_rn(float x) { return flashperf::emulator::to_int(nearbyintf(x)); }
inline int __float2int_rz(float x) { return flashperf::emulator::to_int(truncf(x)); }
inline int __float2int_rd(float x) { return flashperf::emulator::to_int(floorf(x)); }
inline int __float2int_ru(float x) { return flashperf::emulator::to_int(ceilf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// ---- integers --------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
/// Four bytes of (b, a) picked by the low three bits of the selector's nibbles.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned picked = 0;
  for (int i = 0; i < 4; ++i)
    picked |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7u) * 8 & 0xFFu) << 8 * i;
  return picked;
}
/// c plus the dot product of four signed bytes.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 0xFFu) * (b >> 8 * i & 0xFFu);
  return c;
}

[[noreturn]] inline void __trap() { flashperf::emulator::fail("__trap()"); }
inline void __nanosleep(unsigned) {}
inline unsigned __activemask() {
  flashperf::emulator::fail("__activemask() says nothing that a kernel may rely on: pass an explicit mask");
}
