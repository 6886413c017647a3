// How matrices lie in memory for the products: packing, and where a product finds the panels of its right
// operand.
//
// 32 columns of a row-major matrix become one contiguous panel, read from front to back. Elements narrower
// than 32 bits that are multiplied in pairs or quads lie side by side, column by column: the order in which
// the dot-product instructions and the AMX tiles want them. What lies beyond the edges of the matrix is zero.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>

#include "simd.h"

namespace flashperf::gemm {

using simd::vf;
using simd::vi;

constexpr int W = simd::kWidth;
constexpr int64_t kPanel = 32;  // columns per packed panel, the same for every instruction set

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Consecutive elements of a column that share one 32-bit lane of a packed panel.
template <class T>
constexpr int64_t kGroup = std::is_same_v<T, bf16>     ? 2
                           : std::is_same_v<T, int8_t> ? 4
                                                       : 1;

template <class T>
constexpr int64_t panel_elements(int64_t k) {
  return ceil_div(k, kGroup<T>) * kGroup<T> * kPanel;
}

// How many rows of the left operand stay in L2 (2 MiB, or 1) while the panels of the right operand pass by.
constexpr int64_t left_rows(int64_t row_bytes) {
  return std::max<int64_t>(32, (768 << 10) / row_bytes / 32 * 32);
}

// A buffer that only grows, one per thread and use: page faults on every call would be most of a small
// product.
enum class Buffer { kLeft, kRight, kRight2, kEdge, kEdge2, kRow, kHidden };
template <Buffer Use, class T>
T* scratch(int64_t count) {
  struct Owner {
    void* data = nullptr;
    size_t bytes = 0;
    ~Owner() { std::free(data); }
  };
  static thread_local Owner owner;
  const size_t needed = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
  if (needed > owner.bytes) {
    std::free(owner.data);
    owner.bytes = 0;
    owner.data = std::aligned_alloc(64, needed);
    if (!owner.data) throw std::bad_alloc();
    owner.bytes = needed;
  }
  return static_cast<T*>(owner.data);
}

// G rows of 32 columns side by side: out[j * G + g] = rows[g][j]; beyond `depth` rows and `cols` columns,
// zeros.
template <int64_t G, class From, class To>
inline void interleave_rows(const From* rows, int64_t n, int64_t depth, int64_t cols, To* out) {
  if (depth == G && cols >= kPanel) {
    if constexpr (!std::is_same_v<From, To>) {
      for (int64_t j = 0; j < kPanel; j += W) simd::store(out + j, simd::load(rows + j));
    } else {
      for (int64_t j = 0; j < kPanel; ++j)
        for (int64_t g = 0; g < G; ++g) out[j * G + g] = rows[g * n + j];
    }
    return;
  }
  for (int64_t j = 0; j < kPanel; ++j) {
    for (int64_t g = 0; g < G; ++g) {
      if (g >= depth || j >= cols) out[j * G + g] = To{};
      else if constexpr (std::is_same_v<From, To>) out[j * G + g] = rows[g * n + j];
      else out[j * G + g] = simd::from_float<To>(simd::to_float(rows[g * n + j]));
    }
  }
}

// Panel p of the row-major w[k, n], in groups of G.
template <int64_t G, class From, class To>
void pack_panel(const From* w, int64_t k, int64_t n, int64_t p, To* out) {
  w += p * kPanel;
  for (int64_t row = 0; row < k; row += G, out += G * kPanel)
    interleave_rows<G>(w + row * n, n, std::min(G, k - row), n - p * kPanel, out);
}

template <class T>
void pack(const T* w, T* packed, int64_t k, int64_t n) {
  for (int64_t p = 0; p < ceil_div(n, kPanel); ++p)
    pack_panel<kGroup<T>>(w, k, n, p, packed + p * panel_elements<T>(k));
}

// Panel p of a packed matrix of f16, or of pairs of bf16, as f32 with one k per row of 32.
template <class T>
void widen_panel(const T* packed, int64_t k, int64_t, int64_t p, float* out) {
  const T* panel = packed + p * panel_elements<T>(k);
  if constexpr (std::is_same_v<T, f16>) {
    for (int64_t i = 0; i < k * kPanel; i += W) simd::store(out + i, simd::load(panel + i));
  } else {
    for (int64_t row = 0; row < k; row += 2, panel += 2 * kPanel, out += 2 * kPanel) {
      for (int64_t j = 0; j < kPanel; j += W) {
        const vi lanes = *reinterpret_cast<const vi*>(panel + 2 * j);
        simd::store(out + j, (vf)(lanes << 16));
        simd::store(out + kPanel + j, (vf)(lanes & static_cast<int32_t>(0xffff0000u)));
      }
    }
  }
}

template <class B>
struct Columns {
  const B* data;
  int64_t step;  // elements from one step of k to the next
};

// The right operand, panel by panel. The first `in_place` panels are read where they are; the others are made
// when they are needed: one after the other in the same buffer, which stays in cache, or all of them side by
// side if they are `kept` for the next block of rows.
template <class B>
struct Source {
  const B* data = nullptr;
  int64_t stride = 0, step = 0, in_place = 0;  // panel p at data + p * stride
  void (*make)(const void* matrix, int64_t k, int64_t n, int64_t p, B* out) = nullptr;
  const void* matrix = nullptr;
  int64_t k = 0, n = 0, made_elements = 0, made_step = 0;
  bool kept = false;

  template <Buffer Use>
  Columns<B> panel(int64_t p, bool first_pass) const {
    if (p < in_place) return {data + p * stride, step};
    B* out = scratch<Use, B>(kept ? ceil_div(n, kPanel) * made_elements : made_elements);
    if (kept) out += p * made_elements;
    if (first_pass || !kept) make(matrix, k, n, p, out);
    return {out, made_step};
  }
};

template <class T>
Source<T> packed_source(const T* packed, int64_t k, int64_t n) {
  return {packed, panel_elements<T>(k), kPanel * kGroup<T>, ceil_div(n, kPanel)};
}

// Panels of groups of G, made from rows.
template <int64_t G, class To, class From>
Source<To> panels_of_rows(const From* w, int64_t k, int64_t n, bool kept) {
  const auto make = [](const void* rows, int64_t depth, int64_t cols, int64_t p, To* out) {
    pack_panel<G>(static_cast<const From*>(rows), depth, cols, p, out);
  };
  return {nullptr, 0, 0, 0, make, w, k, n, ceil_div(k, G) * G * kPanel, kPanel * G, kept};
}

// The rows themselves; only the columns of a last, partial panel are copied, since a tile reads whole
// vectors.
template <class T>
Source<T> rows_source(const T* w, int64_t k, int64_t n) {
  Source<T> source = panels_of_rows<1, T>(w, k, n, false);
  source.data = w;
  source.stride = kPanel;
  source.step = n;
  source.in_place = n / kPanel;
  return source;
}

template <class T>
Source<float> widened_source(const T* packed, int64_t k, int64_t n, bool kept) {
  const auto make = [](const void* panels, int64_t depth, int64_t cols, int64_t p, float* out) {
    widen_panel(static_cast<const T*>(panels), depth, cols, p, out);
  };
  return {nullptr, 0, 0, 0, make, packed, k, n, ceil_div(k, kGroup<T>) * kGroup<T> * kPanel, kPanel, kept};
}

}  // namespace flashperf::gemm
