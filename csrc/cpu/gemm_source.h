// Where a product finds the panels of its right operand: packed, as rows, or made when they are needed.
#pragma once

#include "gemm_layout.h"

namespace flashperf::gemm {

template <class B>
struct Columns {
  const B* data;
  int64_t step;  // elements from one step of k to the next
};

// The right operand, panel by panel. The first `in_place` panels are read where they are. The others are made
// when they are needed, `together` at a time, in a buffer that they share with those before.
template <class B>
struct Source {
  const void* matrix = nullptr;
  int64_t k = 0, n = 0;
  int64_t in_place = 0, stride = 0, step = 0;  // elements from panel to panel, and from step to step
  void (*make)(const void* matrix, int64_t k, int64_t n, int64_t p, int64_t count, B* out) = nullptr;
  int64_t made_elements = 0, made_step = 0, together = 1;

  // `is_new`: the panel is asked for the first time, or since the buffer was used for others.
  template <Buffer Use>
  Columns<B> panel(int64_t p, bool is_new) const {
    if (p < in_place) return {static_cast<const B*>(matrix) + p * stride, step};
    B* out = scratch<Use, B>(together * made_elements);
    if (is_new && p % together == 0) make(matrix, k, n, p, std::min(together, ceil_div(n, kPanel) - p), out);
    return {out + p % together * made_elements, made_step};
  }
};

// How many panels stay in L2 while the rows of the left operand pass by; as many each time.
template <class B>
int64_t panels_at_once(int64_t n, int64_t elements) {
  const int64_t panels = ceil_div(n, kPanel), bytes = elements * static_cast<int64_t>(sizeof(B));
  return ceil_div(panels, std::min(panels, ceil_div(panels * bytes, kRightBytes<B>)));
}

// Packed panels, read as they are.
template <class T>
Source<T> packed_source(const T* packed, int64_t k, int64_t n) {
  return {packed, k, n, ceil_div(n, kPanel), panel_elements<T>(k), kPanel * kGroup<T>};
}

// Packed panels of a half type, widened to f32 with one k per step.
template <class T>
Source<float> widened_source(const T* packed, int64_t k, int64_t n) {
  const auto make = [](const void* panels, int64_t depth, int64_t, int64_t p, int64_t count, float* out) {
    widen_panels(static_cast<const T*>(panels), depth, p, count, out);
  };
  const int64_t elements = panel_elements<T>(k);
  return {packed, k, n, 0, 0, 0, make, elements, kPanel, panels_at_once<float>(n, elements)};
}

// Panels of groups of G, made from rows: as many as fit into L2 or, if each is used only `once`, as many as
// share a pair of cache lines, which come from memory together.
template <int64_t G, class To, class From>
Source<To> panels_of_rows(const From* w, int64_t k, int64_t n, bool once = false) {
  const auto make = [](const void* rows, int64_t depth, int64_t cols, int64_t p, int64_t count, To* out) {
    pack_panels<G>(static_cast<const From*>(rows), depth, cols, p, count, out);
  };
  const int64_t elements = ceil_div(k, G) * G * kPanel;
  const int64_t together = once ? 4 / static_cast<int64_t>(sizeof(From)) : panels_at_once<To>(n, elements);
  return {w, k, n, 0, 0, 0, make, elements, kPanel * G, together};
}

// The rows themselves; only the columns of a last, partial panel are copied, since a tile reads whole
// vectors.
template <class T>
Source<T> rows_source(const T* w, int64_t k, int64_t n) {
  Source<T> source = panels_of_rows<1, T>(w, k, n);
  source.in_place = n / kPanel;
  source.stride = kPanel;
  source.step = n;
  source.together = 1;
  return source;
}

}  // namespace flashperf::gemm
