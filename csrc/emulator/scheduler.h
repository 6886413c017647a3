// Runs one block at a time, a fiber per CUDA thread, and holds what threads wait for.
//
// Everything that threads do together goes through two calls: barrier() for the block, warp_exchange() for a
// warp. A wait that can never end, or that CUDA leaves undefined, ends the launch with a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "vectors.h"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace flashperf::emulator {

/// A place in a kernel's source: the default argument of every waiting call, so that messages can name it.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Wait for every thread of the block; returns how many of them came with `predicate` true.
int barrier(const char* name, bool predicate, Site where);

/// What a warp operation does once all lanes of its mask are there: lanes[i] is lane i's payload, null
/// outside.
using Combine = void (*)(void* const (&lanes)[32], unsigned mask);

/// Wait for the lanes of `mask`, then the last one combines all payloads. Orders no memory, unless
/// `orders_memory`.
void warp_exchange(const char* name, unsigned mask, void* payload, Combine combine, Site where,
                   bool orders_memory = false);

/// The running thread's lane in its warp, 0 to 31.
int lane_index();

/// The start of the block's dynamic shared memory, aligned to 1024 bytes.
void* dynamic_shared();

/// End the launch; `what` says why, in one sentence without the kernel's name and block.
[[noreturn]] void fail(const std::string& what);

/// " (file.cu:12)"
std::string text(Site where);

struct LaunchRequest {
  const char* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  unsigned max_threads;  // __launch_bounds__, or 1024
  const char* order;     // "forward", "reverse" or "random:SEED"
  void (*body)(void* context);
  void* context;
};

/// Empty if the launch fits a GPU, else why not.
std::string refusal(const LaunchRequest& request);

/// Run all blocks in order. Returns null, or the message of the failure (valid until the next launch).
const char* launch(const LaunchRequest& request);

}  // namespace flashperf::emulator
