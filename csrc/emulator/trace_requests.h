// What a trace is made of: accesses of threads, and the requests of warps that they become.
#pragma once

#include <cstdint>
#include <vector>

#include "trace.h"

namespace flashperf::emulator {

enum class Space : uint8_t { kGlobal, kShared };

/// One access of one thread. Those of one instruction that belong to one request carry `continued` from the
/// second on.
struct Access {
  uint64_t address;
  const void* code;
  uint32_t epoch;  // how often the thread's warp had met before
  uint16_t bytes;
  AccessKind kind;
  Space space;
  bool continued;
};

/// One instruction of one warp, as flashperf/traffic/trace.py reads it.
struct Request {
  uint64_t first_sector;  // index into the list of sectors
  uint32_t sectors;       // global memory: different 32-byte sectors
  uint32_t bytes;         // different bytes
  uint32_t block, warp;
  uint32_t epoch;  // barriers of the block before it
  uint32_t place;  // among the warp's requests since that barrier
  uint32_t instruction;
  uint16_t wavefronts, least_wavefronts;  // shared memory: passes over the banks, and how few there could be
  uint8_t kind, space, lanes, unused[5];
};

/// The trace of one launch.
struct Trace {
  std::vector<Request> requests;
  std::vector<uint64_t> sectors;  // address / 32
  std::vector<const void*> code;  // of every instruction
};

/// Add the requests of one warp: accesses[lane] in the order in which the thread made them. Lanes meet where
/// they execute the same instruction for the same time since the warp last converged.
void add_requests(Trace& trace, const std::vector<Access>* const (&accesses)[32], uint32_t block,
                  uint32_t warp, uint32_t epoch);

}  // namespace flashperf::emulator
