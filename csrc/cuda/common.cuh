// What the kernels share: one wrapper per PTX instruction, warp reductions, 16-byte accesses, conversions.
//
// Device code only, for nvcc and NVRTC (C++17). With FLASHPERF_EMULATE the same kernels run on a CPU
// (csrc/emulator), so raw PTX stands here and nowhere else, each instruction beside its emulated twin.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef FLASHPERF_EMULATE
#define FLASHPERF_SITE , FlashperfSite where = FlashperfSite::here()  // the caller's line, for messages
namespace emulated = flashperf::emulator;
#else
#define FLASHPERF_SITE
#endif

#define DEVICE __device__ __forceinline__

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// ---- matrix products: sum (16 x 8) += A (16 x K) B (K x 8)
// --------------------------------------------------- Lane l is number t = l % 4 of group g = l / 4. Its
// registers hold (PTX ISA, "Matrix fragments for mma"):
//   A, row-major:     a[0] row g, a[1] row g + 8, left half of K; a[2], a[3] the same rows, right half
//   B, column-major:  b[0] upper half of K of column g, b[1] lower half
//   sum:              sum[0], sum[1] row g, columns 2 t and 2 t + 1; sum[2], sum[3] row g + 8

DEVICE void mma_f16(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2] FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::mma_m16n8(emulated::Element::kF16, sum, a, b, sum, where);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

DEVICE void mma_bf16(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2] FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::mma_m16n8(emulated::Element::kBf16, sum, a, b, sum, where);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

DEVICE void mma_tf32(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2] FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::mma_m16n8(emulated::Element::kTf32, sum, a, b, sum, where);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

DEVICE void mma_s8(int (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2] FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::mma_m16n8_s8(sum, a, b, sum, where);
#else
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// mma.sync.m16n8k16 for either 16-bit type.
template <class T>
DEVICE void mma_16bit(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (__is_same(T, __half)) mma_f16(sum, a, b);
  else mma_bf16(sum, a, b);
}

// ---- ldmatrix: 8 x 8 tiles of 16-bit elements from shared memory
// --------------------------------------------- Lanes 8 i to 8 i + 7 give the addresses of the 16-byte rows
// of tile i. Lane l receives row l / 4, elements 2 (l % 4) and the next, of every tile; of the transposed
// tile with load_tiles_transposed.

#ifndef FLASHPERF_EMULATE
DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
#endif

DEVICE void load_tiles(unsigned (&r)[4], const void* row FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::load_matrices(4, false, r, row, where);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

DEVICE void load_tiles(unsigned (&r)[2], const void* row FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::load_matrices(2, false, r, row, where);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

DEVICE void load_tiles_transposed(unsigned (&r)[4], const void* row FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::load_matrices(4, true, r, row, where);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

DEVICE void load_tiles_transposed(unsigned (&r)[2], const void* row FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::load_matrices(2, true, r, row, where);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// ---- cp.async: global to shared memory without registers
// -----------------------------------------------------

/// Copy 16 bytes past L1, or write 16 zero bytes where `valid` is false (the source isn't read then).
DEVICE void copy_async_16(void* target, const void* source, bool valid FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::async_copy(target, source, 16, valid ? 16 : 0, where);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
#endif
}

/// The same with 4 bytes, for rows that aren't a multiple of 16 bytes long.
DEVICE void copy_async_4(void* target, const void* source, bool valid FLASHPERF_SITE) {
#ifdef FLASHPERF_EMULATE
  emulated::async_copy(target, source, 4, valid ? 4 : 0, where);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(target)), "l"(source),
               "r"(valid ? 4 : 0)
               : "memory");
#endif
}

/// Close the group of copies issued since the last commit.
DEVICE void commit_copies() {
#ifdef FLASHPERF_EMULATE
  emulated::async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Wait until at most `pending` of the thread's newest groups are under way. Others see the data after a
/// barrier.
template <int pending>
DEVICE void wait_copies() {
#ifdef FLASHPERF_EMULATE
  emulated::async_wait(pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

/// Round to tf32 (8 bits of exponent, 10 of mantissa), to nearest, as the register that mma_tf32 takes.
DEVICE unsigned to_tf32(float value) {
#ifdef FLASHPERF_EMULATE
  return __float_as_uint(nvcuda::wmma::__float_to_tf32(value));
#else
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
#endif
}

/// Nanoseconds of a clock that all SMs share; it ticks coarsely. Emulated, a millisecond passes per reading.
DEVICE long long global_time_ns() {
#ifdef FLASHPERF_EMULATE
  static long long readings = 0;
  return ++readings * 1000000;
#else
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#endif
}

// ---- one value per lane
// --------------------------------------------------------------------------------------

/// The sum over the warp, in every lane.
template <class T>
DEVICE T warp_sum(T value) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

DEVICE float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// ---- types
// ---------------------------------------------------------------------------------------------------

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(__half x) { return __half2float(x); }
DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
DEVICE T from_float(float x) {
  if constexpr (__is_same(T, float)) return x;
  else if constexpr (__is_same(T, __half)) return __float2half_rn(x);
  else return __float2bfloat16_rn(x);
}

/// 16 bytes of T, read and written in one access.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

/// Two floats as one register of two 16-bit values, the first in the low half.
template <class T>
DEVICE unsigned pack_pair(float low, float high) {
  union {
    T at[2];
    unsigned bits;
  } pair = {{from_float<T>(low), from_float<T>(high)}};
  return pair.bits;
}
