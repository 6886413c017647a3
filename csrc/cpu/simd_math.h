// exp, the normal distribution, silu and reciprocal on one vector.
//
// Polynomials only, the same on every instruction set: a library call per element leaves the vector units
// idle, and a division occupies the divider for 10 to 16 cycles per AVX-512 vector, longer than all of exp.
#pragma once

#include "simd.h"

namespace flashperf::simd {

inline vu bits_of(vf x) { return (vu)x; }
inline vf float_of(vu x) { return (vf)x; }
inline vf magnitude(vf x) { return float_of(bits_of(x) & 0x7fffffffu); }

// 1 / x for finite x with a normal reciprocal; relative error below 2^-23.
inline vf reciprocal(vf x) {
#if defined(__AVX512F__)
  const vf guess = vf(_mm512_rcp14_ps((__m512)x));
  return guess * (2.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

// e^x, relative error below 2^-22.5. Results under the smallest normal number are 0: a multiplication that
// gives a subnormal takes a microcode assist of more than 100 cycles, and softmax has many such arguments.
inline vf exp(vf x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kSmallest = -87.3365448f, kLargest = 88.7228394f;  // e^x is a normal number between them
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  const vf rounded = x * kLog2E + kRound;
  const vf n = rounded - kRound;
  const vf r = (x - n * kLn2High) - n * kLn2Low;
  vf p = splat(0.00138145394f);
  p = p * r + 0.00836874545f;
  p = p * r + 0.0416683890f;
  p = p * r + 0.166665211f;
  p = p * r + 0.499999940f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const vf y = float_of(bits_of(p) + (bits_of(rounded) << 23));  // p * 2^n: n is added to the exponent
  const vf above = x + INFINITY;                                 // NaN stays NaN
  return x < kSmallest ? splat(0.0f) : x <= kLargest ? y : above;
}

// The standard normal distribution function, Phi(x) = (1 + erf(x / sqrt 2)) / 2; absolute error below 1.5e-7.
// An odd polynomial in x up to 5.4, where Phi is within 4e-8 of 1; 14 fused operations beat exp and a
// division.
inline vf normal_distribution(vf x) {
  constexpr float kEdge = 5.4f;
  constexpr float kCoefficients[] = {0.130928113f,    -0.0653280549f,  0.0484995915f,  -0.039206813f,
                                     0.0321165952f,   -0.0257464572f,  0.0196451445f,  -0.0139633198f,
                                     0.00965119496f,  -0.006715339f,   0.00365892375f, -0.00118640976f,
                                     0.000874932685f, -0.00102836902f, 0.000392859085f};
  const vf t = x * x * (2.0f / (kEdge * kEdge)) - 1.0f;
  vf p = splat(kCoefficients[14]);
  for (int i = 13; i >= 0; --i) p = p * t + kCoefficients[i];
  const vf beyond = float_of((bits_of(x) & 0x80000000u) | bits_of(splat(0.5f)));
  return 0.5f + (magnitude(x) > kEdge ? beyond : x * p);
}

inline vf gelu(vf x) { return x * normal_distribution(x); }

// x * sigmoid(x). The argument of exp is bounded so that the reciprocal stays a normal number.
inline vf silu(vf x) { return x * reciprocal(1.0f + exp(minimum(splat(87.0f), -x))); }

}  // namespace flashperf::simd
