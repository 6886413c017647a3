// One CUDA thread as the scheduler sees it.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "fiber.h"
#include "scheduler.h"

namespace flashperf::emulator {

enum class State { kReady, kAtBarrier, kAtWarpOperation, kExited };

struct AsyncCopy {
  void* target;
  const void* source;
  size_t bytes, read_bytes;  // the rest, bytes - read_bytes, is filled with zeros
};

struct Thread {
  Fiber fiber;
  State state = State::kReady;
  uint3 index{};
  int id = 0, lane = 0, warp = 0;

  // What it waits for, while it waits.
  const char* operation = "";
  Site where{};
  bool predicate = false;
  unsigned mask = 0;
  void* payload = nullptr;
  Combine combine = nullptr;

  std::vector<AsyncCopy> open_copies;  // issued, not yet committed
  std::deque<std::vector<AsyncCopy>> committed_copies;
  std::map<unsigned, unsigned> syncs_by_mask;  // how often it passed __syncwarp with each mask

  void reset(int new_id, const dim3& block);
};

/// The thread that runs now; null in the scheduler.
Thread* current_thread();

/// Who waits where, one line per group of threads: "  threads 0-31 wait at __syncthreads (k.cu:12)".
std::string describe(const std::vector<Thread*>& threads);

}  // namespace flashperf::emulator
