// CUDA's vector types, with CUDA's sizes and alignments, and dim3.
#pragma once

#define FLASHPERF_VECTOR2(type, element, alignment) \
  struct alignas(alignment) type {                  \
    element x, y;                                   \
  };                                                \
  inline type make_##type(element x, element y) { return {x, y}; }

#define FLASHPERF_VECTOR3(type, element) \
  struct type {                          \
    element x, y, z;                     \
  };                                     \
  inline type make_##type(element x, element y, element z) { return {x, y, z}; }

#define FLASHPERF_VECTOR4(type, element, alignment) \
  struct alignas(alignment) type {                  \
    element x, y, z, w;                             \
  };                                                \
  inline type make_##type(element x, element y, element z, element w) { return {x, y, z, w}; }

FLASHPERF_VECTOR2(char2, signed char, 2)
FLASHPERF_VECTOR2(uchar2, unsigned char, 2)
FLASHPERF_VECTOR2(short2, short, 4)
FLASHPERF_VECTOR2(ushort2, unsigned short, 4)
FLASHPERF_VECTOR2(int2, int, 8)
FLASHPERF_VECTOR2(uint2, unsigned, 8)
FLASHPERF_VECTOR2(float2, float, 8)
FLASHPERF_VECTOR2(double2, double, 16)
FLASHPERF_VECTOR2(longlong2, long long, 16)
FLASHPERF_VECTOR3(int3, int)
FLASHPERF_VECTOR3(uint3, unsigned)
FLASHPERF_VECTOR3(float3, float)
FLASHPERF_VECTOR4(char4, signed char, 4)
FLASHPERF_VECTOR4(uchar4, unsigned char, 4)
FLASHPERF_VECTOR4(short4, short, 8)
FLASHPERF_VECTOR4(ushort4, unsigned short, 8)
FLASHPERF_VECTOR4(int4, int, 16)
FLASHPERF_VECTOR4(uint4, unsigned, 16)
FLASHPERF_VECTOR4(float4, float, 16)

#undef FLASHPERF_VECTOR2
#undef FLASHPERF_VECTOR3
#undef FLASHPERF_VECTOR4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
