// cp.async and the __pipeline_* functions. A copy is made as late as CUDA allows, at the wait that guarantees
// it, and its target is filled with NaN when it is issued: a missing wait, a wait for the wrong group and a
// copy into a buffer that others still read all show in the results.
#pragma once

#include "scheduler.h"

namespace flashperf::emulator {

/// Copy read_bytes of 4, 8 or 16 `bytes`, and fill the rest with zeros.
void async_copy(void* target, const void* source, size_t bytes, size_t read_bytes, Site where);
/// Close the thread's group of copies.
void async_commit();
/// Make the copies of all groups but the newest `pending`.
void async_wait(int pending);
/// Make all copies, committed or not (cp.async.wait_all).
void async_wait_all();

}  // namespace flashperf::emulator

inline void __pipeline_memcpy_async(void* target, const void* source, size_t bytes, size_t zero_bytes = 0,
                                    flashperf::emulator::Site where = flashperf::emulator::Site::here()) {
  flashperf::emulator::async_copy(target, source, bytes, bytes - zero_bytes, where);
}
inline void __pipeline_commit() { flashperf::emulator::async_commit(); }
inline void __pipeline_wait_prior(int pending) { flashperf::emulator::async_wait(pending); }
