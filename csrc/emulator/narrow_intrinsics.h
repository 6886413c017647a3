// The functions of cuda_fp16.h and cuda_bf16.h on top of narrow.h; what both types share is a template.
#pragma once

#include <cmath>

#include "narrow.h"
#include "vectors.h"

// ---- conversions -----------------------------------------------------------------------------------------

#define FLASHPERF_CONVERSIONS(type, type2, to, from, to2, to2_pair, from2) \
  inline type to(float x) { return type(x); }                              \
  inline type to##_rn(float x) { return type(x); }                         \
  inline float from(type x) { return float(x); }                           \
  inline type2 to##2_rn(float x) { return {type(x), type(x)}; }            \
  inline type2 to2(float x, float y) { return {type(x), type(y)}; }        \
  inline type2 to2_pair(float2 v) { return {type(v.x), type(v.y)}; }       \
  inline float2 from2(type2 v) { return {float(v.x), float(v.y)}; }
FLASHPERF_CONVERSIONS(__half, __half2, __float2half, __half2float, __floats2half2_rn, __float22half2_rn,
                      __half22float2)
// CUDA's name for a bfloat16 pair from one float is __float2bfloat162_rn.
FLASHPERF_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, __float2bfloat16, __bfloat162float,
                      __floats2bfloat162_rn, __float22bfloat162_rn, __bfloat1622float2)
#undef FLASHPERF_CONVERSIONS

inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline int __half2int_rn(__half x) { return static_cast<int>(nearbyintf(float(x))); }
inline __half __int2half_rn(int x) { return __half(static_cast<float>(x)); }

// ---- arithmetic, for one value and for a pair ------------------------------------------------------------

namespace flashperf::emulator {

template <class Format>
Narrow<Format> fused_multiply_add(Narrow<Format> a, Narrow<Format> b, Narrow<Format> c) {
  return Narrow<Format>(static_cast<float>(double(float(a)) * float(b) + float(c)));  // the product is exact
}

template <class Format>
Narrow<Format> larger(Narrow<Format> a, Narrow<Format> b) {
  return Narrow<Format>(fmaxf(float(a), float(b)));  // a number rather than a NaN, as CUDA does
}

template <class Format>
Narrow<Format> smaller(Narrow<Format> a, Narrow<Format> b) {
  return Narrow<Format>(fminf(float(a), float(b)));
}

}  // namespace flashperf::emulator

#define FLASHPERF_TEMPLATE                                               \
  template <class Format, class N = flashperf::emulator::Narrow<Format>, \
            class N2 = flashperf::emulator::Narrow2<Format>>
#define FLASHPERF_N flashperf::emulator::Narrow<Format>
#define FLASHPERF_N2 flashperf::emulator::Narrow2<Format>

#define FLASHPERF_BINARY(name, expression)                                       \
  FLASHPERF_TEMPLATE N name(FLASHPERF_N a, FLASHPERF_N b) { return expression; } \
  FLASHPERF_TEMPLATE N2 name##2(FLASHPERF_N2 a, FLASHPERF_N2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
FLASHPERF_BINARY(__hadd, a + b)
FLASHPERF_BINARY(__hsub, a - b)
FLASHPERF_BINARY(__hmul, a* b)
FLASHPERF_BINARY(__hmax, flashperf::emulator::larger(a, b))
FLASHPERF_BINARY(__hmin, flashperf::emulator::smaller(a, b))
#undef FLASHPERF_BINARY

FLASHPERF_TEMPLATE N __hdiv(FLASHPERF_N a, FLASHPERF_N b) { return a / b; }
FLASHPERF_TEMPLATE N2 __h2div(FLASHPERF_N2 a, FLASHPERF_N2 b) { return {a.x / b.x, a.y / b.y}; }
FLASHPERF_TEMPLATE N __hneg(FLASHPERF_N a) { return -a; }
FLASHPERF_TEMPLATE N2 __hneg2(FLASHPERF_N2 a) { return {-a.x, -a.y}; }
FLASHPERF_TEMPLATE N __habs(FLASHPERF_N a) { return N::from_bits(a.bits & 0x7FFFu); }
FLASHPERF_TEMPLATE N2 __habs2(FLASHPERF_N2 a) { return {__habs(a.x), __habs(a.y)}; }
FLASHPERF_TEMPLATE N __hfma(FLASHPERF_N a, FLASHPERF_N b, FLASHPERF_N c) {
  return flashperf::emulator::fused_multiply_add(a, b, c);
}
FLASHPERF_TEMPLATE N2 __hfma2(FLASHPERF_N2 a, FLASHPERF_N2 b, FLASHPERF_N2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

FLASHPERF_TEMPLATE bool __heq(FLASHPERF_N a, FLASHPERF_N b) { return a == b; }
FLASHPERF_TEMPLATE bool __hne(FLASHPERF_N a, FLASHPERF_N b) { return a != b; }
FLASHPERF_TEMPLATE bool __hlt(FLASHPERF_N a, FLASHPERF_N b) { return a < b; }
FLASHPERF_TEMPLATE bool __hle(FLASHPERF_N a, FLASHPERF_N b) { return a <= b; }
FLASHPERF_TEMPLATE bool __hgt(FLASHPERF_N a, FLASHPERF_N b) { return a > b; }
FLASHPERF_TEMPLATE bool __hge(FLASHPERF_N a, FLASHPERF_N b) { return a >= b; }
FLASHPERF_TEMPLATE bool __hisnan(FLASHPERF_N a) { return std::isnan(float(a)); }

FLASHPERF_TEMPLATE N hexp(FLASHPERF_N a) { return N(expf(float(a))); }
FLASHPERF_TEMPLATE N hlog(FLASHPERF_N a) { return N(logf(float(a))); }
FLASHPERF_TEMPLATE N hsqrt(FLASHPERF_N a) { return N(sqrtf(float(a))); }
FLASHPERF_TEMPLATE N hrsqrt(FLASHPERF_N a) { return N(1.0f / sqrtf(float(a))); }
FLASHPERF_TEMPLATE N hrcp(FLASHPERF_N a) { return N(1.0f / float(a)); }

// ---- pairs -----------------------------------------------------------------------------------------------

FLASHPERF_TEMPLATE float __low2float(FLASHPERF_N2 a) { return float(a.x); }
FLASHPERF_TEMPLATE float __high2float(FLASHPERF_N2 a) { return float(a.y); }

#define FLASHPERF_PAIRS(type, type2, low, high, join, both) \
  inline type low(type2 a) { return a.x; }                  \
  inline type high(type2 a) { return a.y; }                 \
  inline type2 join(type a, type b) { return {a, b}; }      \
  inline type2 both(type a) { return {a, a}; }
FLASHPERF_PAIRS(__half, __half2, __low2half, __high2half, __halves2half2, __half2half2)
FLASHPERF_PAIRS(__nv_bfloat16, __nv_bfloat162, __low2bfloat16, __high2bfloat16, __halves2bfloat162,
                __bfloat162bfloat162)
#undef FLASHPERF_PAIRS
#undef FLASHPERF_TEMPLATE
#undef FLASHPERF_N
#undef FLASHPERF_N2
