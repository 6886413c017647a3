// How attention walks its rows: runs of rows that share a cache slot, and the dot products of a single row.
#pragma once

#include "attention_tile.h"

namespace flashperf::simd {

// Shapes as the kernels get them: q[m][heads][e], caches [s][heads][t][e].
struct Shape {
  int64_t m, heads, e, s, t;

  int64_t query(int64_t row, int64_t head) const { return (row * heads + head) * e; }
  int64_t keys(int64_t slot, int64_t head) const { return (slot * heads + head) * t * e; }
};

// From this many rows on a tile pays: it fills lanes with rows, so with fewer most of its work is wasted.
constexpr int64_t kFewestRows = std::max(4, kWidth / 2);

inline int64_t used_keys(const int32_t* extent, int64_t t) { return std::clamp<int64_t>(extent[0], 0, t); }

// visit(first row, rows, slot) for every run of at most kLanes rows of one slot; slot is -1 if there is no
// such.
template <class Visit>
void for_each_run(const int32_t* slot, const Shape& shape, Visit visit) {
  for (int64_t i = 0; i < shape.m;) {
    int64_t rows = 1;
    while (rows < kLanes && i + rows < shape.m && slot[i + rows] == slot[i]) ++rows;
    visit(i, rows, slot[i] >= 0 && slot[i] < shape.s ? int64_t{slot[i]} : int64_t{-1});
    i += rows;
  }
}

// The dot products of q with kWidth keys, at once: one at a time, each would end in a chain of log2(kWidth)
// dependent shuffles. Lanes beyond `last` repeat that key.
template <bool Full, class T>
inline vf dot_group(const float* q, const T* k, int64_t e, int64_t last) {
  const auto key = [&](int i) { return k + (Full || i < last ? int64_t{i} : last) * e; };
  vf x[kWidth] = {};
  int64_t j = 0;
  for (; j + kWidth <= e; j += kWidth)
    for (int i = 0; i < kWidth; ++i) x[i] += load(q + j) * load(key(i) + j);
  if (j < e)
    for (int i = 0; i < kWidth; ++i) x[i] += load(q + j) * load_part(key(i) + j, e - j);
  return sums_of_each(x);
}

// scores[0..keys) = q . k[key]; q has padded(e) floats, scores padded(keys).
template <class T>
inline void dots(const float* q, const T* k, int64_t keys, int64_t e, float* scores) {
  int64_t i = 0;
  for (; i + kWidth <= keys; i += kWidth) store(scores + i, dot_group<true>(q, k + i * e, e, 0));
  if (i < keys) store(scores + i, dot_group<false>(q, k + i * e, e, keys - i - 1));
}

template <class T>
inline void scaled_query(const T* q, int64_t e, float scale, float* to) {  // padded(e) floats
  for (int64_t j = 0; j < e; j += kWidth)
    store(to + j, scale * load_part(q + j, std::min<int64_t>(kWidth, e - j)));
}

}  // namespace flashperf::simd
