// Where a product finds the panels of its right operand: packed, as rows, or made when they are needed.
#pragma once

#include "gemm_layout.h"

namespace flashperf::gemm {

template <class B>
struct Columns {
  const B* data;
  int64_t step;  // elements from one step of k to the next
};

// Memory that will be read next.
struct Ahead {
  const char* data = nullptr;
  int64_t bytes = 0;

  // Asks for one of `parts` parts of it. The hardware prefetcher starts anew in every page, which a tile
  // finishes in 32 steps: without this the first tile of a panel that comes from L3 takes three times as long
  // as the others.
  void fetch(int64_t part, int64_t parts) const {
    const int64_t end = bytes * (part + 1) / parts;
    for (int64_t byte = bytes * part / parts; byte < end; byte += 64) __builtin_prefetch(data + byte);
  }
};

// The right operand, panel by panel. The first `in_place` panels are read where they are. The others are made
// when they are needed, `together` at a time, in a buffer that they share with those before; or all at once
// if there is room for all of them, and then they serve every further block of rows.
template <class B>
struct Source {
  const void* matrix = nullptr;
  int64_t k = 0, n = 0;
  int64_t in_place = 0, stride = 0, step = 0;  // elements from panel to panel, and from step to step
  void (*make)(const void* matrix, int64_t k, int64_t n, int64_t p, int64_t count, B* out) = nullptr;
  int64_t made_elements = 0, made_step = 0, together = 1;

  template <Buffer Use>
  Columns<B> panel(int64_t p, bool first_pass) const {
    if (p < in_place) return {static_cast<const B*>(matrix) + p * stride, step};
    B* out = scratch<Use, B>(together * made_elements);
    const bool is_due = together < panels() || first_pass;
    if (is_due && p % together == 0) make(matrix, k, n, p, std::min(together, panels() - p), out);
    return {out + p % together * made_elements, made_step};
  }

  // The memory of panel p, if it is in one piece and not in L2 anyway, with all the others.
  template <Buffer Use>
  Ahead ahead(int64_t p) const {
    const bool is_packed = in_place == panels(), is_made = in_place == 0 && together >= panels();
    const int64_t bytes = (is_packed ? stride : made_elements) * static_cast<int64_t>(sizeof(B));
    if (p >= panels() || !(is_packed || is_made) || bytes * panels() < (1 << 20)) return {};
    const B* data = is_packed ? static_cast<const B*>(matrix) + p * stride
                              : scratch<Use, B>(together * made_elements) + p * made_elements;
    return {reinterpret_cast<const char*>(data), bytes};
  }

 private:
  int64_t panels() const { return ceil_div(n, kPanel); }
};

// Packed panels, read as they are.
template <class T>
Source<T> packed_source(const T* packed, int64_t k, int64_t n) {
  return {packed, k, n, ceil_div(n, kPanel), panel_elements<T>(k), kPanel * kGroup<T>};
}

// Packed panels of a half type, widened to f32 with one k per step.
template <class T>
Source<float> widened_source(const T* packed, int64_t k, int64_t n, bool kept) {
  const auto make = [](const void* panels, int64_t depth, int64_t, int64_t p, int64_t count, float* out) {
    widen_panels(static_cast<const T*>(panels), depth, p, count, out);
  };
  return {packed, k, n, 0, 0, 0, make, panel_elements<T>(k), kPanel, kept ? ceil_div(n, kPanel) : 1};
}

// Panels of groups of G, made from rows.
template <int64_t G, class To, class From>
Source<To> panels_of_rows(const From* w, int64_t k, int64_t n, bool kept) {
  const auto make = [](const void* rows, int64_t depth, int64_t cols, int64_t p, int64_t count, To* out) {
    pack_panels<G>(static_cast<const From*>(rows), depth, cols, p, count, out);
  };
  // Lines come from memory in pairs, 128 bytes: the width of one panel of f32, but of two of a half type.
  const int64_t together = kept ? ceil_div(n, kPanel) : 4 / static_cast<int64_t>(sizeof(From));
  return {w, k, n, 0, 0, 0, make, ceil_div(k, G) * G * kPanel, kPanel * G, together};
}

// The rows themselves; only the columns of a last, partial panel are copied, since a tile reads whole
// vectors.
template <class T>
Source<T> rows_source(const T* w, int64_t k, int64_t n) {
  Source<T> source = panels_of_rows<1, T>(w, k, n, false);
  source.in_place = n / kPanel;
  source.stride = kPanel;
  source.step = n;
  source.together = 1;
  return source;
}

}  // namespace flashperf::gemm
