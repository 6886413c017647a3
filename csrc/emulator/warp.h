// Barriers and warp operations as kernels call them: __syncthreads, shuffles, votes, reductions, matches.
//
// Shuffles and votes exchange registers and, as on the hardware, order no memory; __syncwarp does.
#pragma once

#include <cstring>
#include <string>

#include "scheduler.h"

namespace flashperf::emulator {

struct Shuffle {
  uint64_t value, result;
  int source;
  const char* name;
  Site where;
};

struct Vote {
  uint64_t value, result;
};

void combine_shuffle(void* const (&lanes)[32], unsigned mask);
void combine_ballot(void* const (&lanes)[32], unsigned mask);
void combine_match_any(void* const (&lanes)[32], unsigned mask);
void combine_match_all(void* const (&lanes)[32], unsigned mask);

enum class Reduction { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };
unsigned reduce(const char* name, Reduction operation, unsigned mask, unsigned value, Site where);

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8, "warp operations move at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T shuffle(const char* name, unsigned mask, T value, int source, Site where) {
  Shuffle payload{to_bits(value), 0, source, name, where};
  warp_exchange(name, mask, &payload, combine_shuffle, where);
  return from_bits<T>(payload.result);
}

inline uint64_t vote(const char* name, unsigned mask, uint64_t value, Combine combine, Site where) {
  Vote payload{value, 0};
  warp_exchange(name, mask, &payload, combine, where);
  return payload.result;
}

}  // namespace flashperf::emulator

using FlashperfSite = flashperf::emulator::Site;

inline void __syncthreads(FlashperfSite where = FlashperfSite::here()) {
  flashperf::emulator::barrier("__syncthreads", false, where);
}
inline int __syncthreads_count(int predicate, FlashperfSite where = FlashperfSite::here()) {
  return flashperf::emulator::barrier("__syncthreads_count", predicate != 0, where);
}
inline int __syncthreads_and(int predicate, FlashperfSite where = FlashperfSite::here()) {
  return flashperf::emulator::barrier("__syncthreads_and", predicate == 0, where) == 0;
}
inline int __syncthreads_or(int predicate, FlashperfSite where = FlashperfSite::here()) {
  return flashperf::emulator::barrier("__syncthreads_or", predicate != 0, where) != 0;
}
inline void __syncwarp(unsigned mask = ~0u, FlashperfSite where = FlashperfSite::here()) {
  flashperf::emulator::warp_exchange("__syncwarp", mask, nullptr, nullptr, where, true);
}

// One block runs at a time and the machine orders its own stores: a fence has nothing to do.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              FlashperfSite where = FlashperfSite::here()) {
  const int lane = flashperf::emulator::lane_index();
  const int from = (lane & ~(width - 1)) | (source & (width - 1));
  return flashperf::emulator::shuffle("__shfl_sync", mask, value, from, where);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  FlashperfSite where = FlashperfSite::here()) {
  const int lane = flashperf::emulator::lane_index(), from = lane ^ lane_mask;
  const bool inside = from < (lane & ~(width - 1)) + width;
  return flashperf::emulator::shuffle("__shfl_xor_sync", mask, value, inside ? from : lane, where);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   FlashperfSite where = FlashperfSite::here()) {
  const int lane = flashperf::emulator::lane_index(), from = lane + static_cast<int>(delta);
  const bool inside = from < (lane & ~(width - 1)) + width;
  return flashperf::emulator::shuffle("__shfl_down_sync", mask, value, inside ? from : lane, where);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 FlashperfSite where = FlashperfSite::here()) {
  const int lane = flashperf::emulator::lane_index(), from = lane - static_cast<int>(delta);
  const bool inside = from >= (lane & ~(width - 1));
  return flashperf::emulator::shuffle("__shfl_up_sync", mask, value, inside ? from : lane, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, FlashperfSite where = FlashperfSite::here()) {
  using namespace flashperf::emulator;
  return static_cast<unsigned>(vote("__ballot_sync", mask, predicate != 0, combine_ballot, where));
}
inline int __any_sync(unsigned mask, int predicate, FlashperfSite where = FlashperfSite::here()) {
  using namespace flashperf::emulator;
  return vote("__any_sync", mask, predicate != 0, combine_ballot, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, FlashperfSite where = FlashperfSite::here()) {
  using namespace flashperf::emulator;
  return vote("__all_sync", mask, predicate == 0, combine_ballot, where) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, FlashperfSite where = FlashperfSite::here()) {
  using namespace flashperf::emulator;
  return static_cast<unsigned>(vote("__match_any_sync", mask, to_bits(value), combine_match_any, where));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all, FlashperfSite where = FlashperfSite::here()) {
  using namespace flashperf::emulator;
  const uint64_t same = vote("__match_all_sync", mask, to_bits(value), combine_match_all, where);
  *all = same != 0;
  return static_cast<unsigned>(same);
}

#define FLASHPERF_REDUCE(name, type, operation)                                                    \
  inline type name(unsigned mask, type value, FlashperfSite where = FlashperfSite::here()) {       \
    using flashperf::emulator::Reduction;                                                          \
    return static_cast<type>(                                                                      \
        flashperf::emulator::reduce(#name, operation, mask, static_cast<unsigned>(value), where)); \
  }
FLASHPERF_REDUCE(__reduce_add_sync, unsigned, Reduction::kAdd)
FLASHPERF_REDUCE(__reduce_min_sync, unsigned, Reduction::kMin)
FLASHPERF_REDUCE(__reduce_max_sync, unsigned, Reduction::kMax)
FLASHPERF_REDUCE(__reduce_add_sync, int, Reduction::kAdd)
FLASHPERF_REDUCE(__reduce_min_sync, int, Reduction::kMinSigned)
FLASHPERF_REDUCE(__reduce_max_sync, int, Reduction::kMaxSigned)
FLASHPERF_REDUCE(__reduce_and_sync, unsigned, Reduction::kAnd)
FLASHPERF_REDUCE(__reduce_or_sync, unsigned, Reduction::kOr)
FLASHPERF_REDUCE(__reduce_xor_sync, unsigned, Reduction::kXor)
#undef FLASHPERF_REDUCE
