// What the attention kernels share: their arguments, and which keys a query sees.
#pragma once

#include "common.cuh"

/// Query i, of m, stands at `position[i]` of the sequence in cache slot `slot[i]`, and sees the keys 0 to
/// position, or with window > 0 the last `window` of those. A query without a valid slot and position gives
/// zeros. With a mask it sees all t keys, plus mask[m,t] on its scores: that is how a window is often had, at
/// full cost.
template <class T>
struct Attention {
  const T *q, *k, *v;  // q[m,heads,e], k[slots,heads,t,e], v alike
  const int *slot, *position;
  const float* mask;  // null without one
  int m, heads, e, slots, t, window;
  float scale;
  const int* extent = nullptr;  // keys that are there, of t; null: all

  struct Range {
    int slot, first, end;  // slot -1 and no keys if the query isn't valid
  };

  DEVICE Range keys_of(int row) const {
    if (row >= m) return {-1, t, 0};
    const int s = slot[row], p = position ? position[row] : 0;
    if (s < 0 || s >= slots || p < 0) return {-1, t, 0};
    if (mask) return {s, 0, length()};
    return {s, window > 0 ? max(0, p + 1 - window) : 0, min(p + 1, t)};
  }
  DEVICE int length() const { return extent ? min(*extent, t) : t; }
  DEVICE size_t query_at(int row, int head) const { return (static_cast<size_t>(row) * heads + head) * e; }
  DEVICE size_t keys_at(int s, int head) const { return (static_cast<size_t>(s) * heads + head) * t * e; }
};
