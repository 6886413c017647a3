// What the last lane to arrive does with the payloads of all lanes.
#include "warp.h"

#include <algorithm>

#include "thread.h"

namespace flashperf::emulator {

void combine_shuffle(void* const (&lanes)[32], unsigned mask) {
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Shuffle& mine = *static_cast<Shuffle*>(lanes[lane]);
    if (!(mask >> mine.source & 1)) {
      char digits[16];
      snprintf(digits, sizeof digits, "0x%08x", mask);
      fail("wrong mask: " + std::string(mine.name) + text(mine.where) + ": lane " + std::to_string(lane) +
           " reads lane " + std::to_string(mine.source) + ", which mask " + digits + " leaves out");
    }
    mine.result = static_cast<Shuffle*>(lanes[mine.source])->value;
  }
}

template <class Function>
static void set_results(void* const (&lanes)[32], unsigned mask, Function result_of) {
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) static_cast<Vote*>(lanes[lane])->result = result_of(lane);
}

static uint64_t lanes_with(void* const (&lanes)[32], unsigned mask, uint64_t value) {
  uint64_t found = 0;
  for (int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) && static_cast<Vote*>(lanes[lane])->value == value) found |= 1ull << lane;
  return found;
}

void combine_ballot(void* const (&lanes)[32], unsigned mask) {
  const uint64_t found = lanes_with(lanes, mask, 1);
  set_results(lanes, mask, [&](int) { return found; });
}

void combine_match_any(void* const (&lanes)[32], unsigned mask) {
  set_results(lanes, mask,
              [&](int lane) { return lanes_with(lanes, mask, static_cast<Vote*>(lanes[lane])->value); });
}

void combine_match_all(void* const (&lanes)[32], unsigned mask) {
  const uint64_t same = lanes_with(lanes, mask, static_cast<Vote*>(lanes[__builtin_ctz(mask)])->value);
  set_results(lanes, mask, [&](int) { return same == mask ? same : 0; });
}

template <Reduction operation>
static unsigned apply(unsigned a, unsigned b) {
  switch (operation) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMinSigned:
      return static_cast<unsigned>(std::min(static_cast<int>(a), static_cast<int>(b)));
    case Reduction::kMaxSigned:
      return static_cast<unsigned>(std::max(static_cast<int>(a), static_cast<int>(b)));
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      return a ^ b;
  }
  return 0;
}

template <Reduction operation>
static void combine_reduction(void* const (&lanes)[32], unsigned mask) {
  bool first = true;
  unsigned total = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const unsigned value = static_cast<unsigned>(static_cast<Vote*>(lanes[lane])->value);
    total = first ? value : apply<operation>(total, value);
    first = false;
  }
  set_results(lanes, mask, [&](int) { return total; });
}

unsigned reduce(const char* name, Reduction operation, unsigned mask, unsigned value, Site where) {
  static constexpr Combine combine[] = {
      combine_reduction<Reduction::kAdd>,       combine_reduction<Reduction::kMin>,
      combine_reduction<Reduction::kMax>,       combine_reduction<Reduction::kMinSigned>,
      combine_reduction<Reduction::kMaxSigned>, combine_reduction<Reduction::kAnd>,
      combine_reduction<Reduction::kOr>,        combine_reduction<Reduction::kXor>,
  };
  return static_cast<unsigned>(vote(name, mask, value, combine[static_cast<int>(operation)], where));
}

}  // namespace flashperf::emulator
