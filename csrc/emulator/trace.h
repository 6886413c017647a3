// Every access of every CUDA thread to global and shared memory, grouped into the requests of its warps.
//
// Kernels built for tracing are compiled with -fsanitize=thread, whose callbacks (trace_hooks.cpp) end here
// instead of in ThreadSanitizer. What the runtime does for a thread (ldmatrix, cp.async, WMMA) is noted by
// the functions below. An access is traced if it lies in an array of the launch or in shared memory: stacks,
// threadIdx and constants are not traffic. Without FLASHPERF_TRACE all of this is nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashperf::emulator {

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic, kCopy, kCopyPastL1 };

#ifdef FLASHPERF_TRACE
/// An access of the running thread by the instruction at `code`.
void note_access(const void* address, size_t bytes, AccessKind kind, const void* code);
/// The running thread came to where its whole warp, or block, must meet.
void note_converged();

void note_shared_array(void* address, size_t bytes);
void note_launch(void* dynamic_shared, size_t bytes, size_t threads);
/// All threads of the block are at a barrier.
void note_barrier();
void note_block_end();

/// Until end_request, the accesses of the running thread are one: a WMMA load or store.
void begin_request();
void end_request();
#else
inline void note_access(const void*, size_t, AccessKind, const void*) {}
inline void note_converged() {}
inline void note_shared_array(void*, size_t) {}
inline void note_launch(void*, size_t, size_t) {}
inline void note_barrier() {}
inline void note_block_end() {}
inline void begin_request() {}
inline void end_request() {}
#endif

}  // namespace flashperf::emulator
