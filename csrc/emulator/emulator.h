// Everything that CUDA device code may use, for a host compiler: included before the kernel's own source.
// The kernel sees FLASHPERF_EMULATE; raw PTX belongs behind wrappers that test it (csrc/cuda/common.cuh).
#pragma once

#define FLASHPERF_EMULATE 1

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#define __device__
#define __host__
#define __constant__ static
#ifdef FLASHPERF_SANITIZED  // inlining everything makes the compiler slow where every access is checked
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

#include "async_copy.h"
#include "atomics.h"
#include "cooperative.h"
#include "intrinsics.h"
#include "matrix.h"
#include "narrow_intrinsics.h"
#include "publish.h"
#include "scheduler.h"
#include "shared.h"
#include "vectors.h"
#include "warp.h"
#include "wmma.h"
