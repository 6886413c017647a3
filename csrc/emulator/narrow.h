// half and bfloat16: 16 bits of storage, arithmetic in float with one rounding (to nearest, ties to even).
#pragma once

#include <cstdint>
#include <cstring>

namespace flashperf::emulator {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// IEEE binary16.
struct HalfFormat {
  static float widen(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return float_from_bits(sign | 0x7F800000u | magnitude << 13);  // infinity, NaN
    // Shifted into place the exponent is 112 too small; the product puts that right, subnormals included.
    return float_from_bits(sign | float_bits(float_from_bits(magnitude << 13) * 0x1p112f));
  }

  static uint16_t narrow(float value) {
    const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7FFFu);   // NaN, as CUDA gives it
    if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above: infinity
    if (magnitude <
        0x38800000u) {  // below 2^-14: the float adder rounds at 2^-24, the last place of subnormals
      const float shifted = float_from_bits(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (float_bits(shifted) - float_bits(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u;
    return static_cast<uint16_t>(sign | rounded >> 13);
  }
};

/// bfloat16: the upper half of a float.
struct Bfloat16Format {
  static float widen(uint16_t bits) { return float_from_bits(static_cast<uint32_t>(bits) << 16); }

  static uint16_t narrow(float value) {
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
};

template <class Format>
struct Narrow {
  uint16_t bits;

  Narrow() = default;
  Narrow(float value) : bits(Format::narrow(value)) {}
  Narrow(double value) : Narrow(static_cast<float>(value)) {}
  Narrow(int value) : Narrow(static_cast<float>(value)) {}
  Narrow(unsigned value) : Narrow(static_cast<float>(value)) {}
  operator float() const { return Format::widen(bits); }

  static Narrow from_bits(uint16_t bits) {
    Narrow value;
    value.bits = bits;
    return value;
  }

  Narrow& operator+=(Narrow other) { return *this = Narrow(float(*this) + float(other)); }
  Narrow& operator-=(Narrow other) { return *this = Narrow(float(*this) - float(other)); }
  Narrow& operator*=(Narrow other) { return *this = Narrow(float(*this) * float(other)); }
  Narrow& operator/=(Narrow other) { return *this = Narrow(float(*this) / float(other)); }
  friend Narrow operator+(Narrow a, Narrow b) { return a += b; }
  friend Narrow operator-(Narrow a, Narrow b) { return a -= b; }
  friend Narrow operator*(Narrow a, Narrow b) { return a *= b; }
  friend Narrow operator/(Narrow a, Narrow b) { return a /= b; }
  friend Narrow operator-(Narrow a) { return from_bits(a.bits ^ 0x8000u); }
  friend bool operator==(Narrow a, Narrow b) { return float(a) == float(b); }
  friend bool operator!=(Narrow a, Narrow b) { return float(a) != float(b); }
  friend bool operator<(Narrow a, Narrow b) { return float(a) < float(b); }
  friend bool operator>(Narrow a, Narrow b) { return float(a) > float(b); }
  friend bool operator<=(Narrow a, Narrow b) { return float(a) <= float(b); }
  friend bool operator>=(Narrow a, Narrow b) { return float(a) >= float(b); }
};

template <class Format>
struct alignas(4) Narrow2 {
  Narrow<Format> x, y;

  friend Narrow2 operator+(Narrow2 a, Narrow2 b) { return {a.x + b.x, a.y + b.y}; }
  friend Narrow2 operator-(Narrow2 a, Narrow2 b) { return {a.x - b.x, a.y - b.y}; }
  friend Narrow2 operator*(Narrow2 a, Narrow2 b) { return {a.x * b.x, a.y * b.y}; }
};

}  // namespace flashperf::emulator

using __half = flashperf::emulator::Narrow<flashperf::emulator::HalfFormat>;
using __half2 = flashperf::emulator::Narrow2<flashperf::emulator::HalfFormat>;
using half = __half;
using half2 = __half2;
using __nv_bfloat16 = flashperf::emulator::Narrow<flashperf::emulator::Bfloat16Format>;
using __nv_bfloat162 = flashperf::emulator::Narrow2<flashperf::emulator::Bfloat16Format>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
