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
#if defined(__linux__)
#include <sys/mman.h>
#endif

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
  return std::max<int64_t>(32, (512 << 10) / row_bytes / 32 * 32);
}

// A buffer that only grows, one per thread and use: page faults on every call would be most of a small
// product.
class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  GrowingBuffer(const GrowingBuffer&) = delete;
  ~GrowingBuffer() { std::free(data_); }

  void* at_least(size_t bytes) {
    if (bytes > bytes_) grow(bytes);
    return data_;
  }

 private:
  void grow(size_t bytes) {
    const size_t page = bytes < kHugePage ? 64 : kHugePage;
    bytes = (bytes + page - 1) / page * page;
    std::free(data_);
    bytes_ = 0;
    data_ = std::aligned_alloc(page, bytes);
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)  // a panel of 32 columns is spread over many small pages, more than the TLB holds
    if (page == kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    bytes_ = bytes;
  }

  static constexpr size_t kHugePage = 2 << 20;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class Buffer { kLeft, kRight, kRight2, kEdge, kEdge2, kRow, kHidden, kSums };
template <Buffer Use, class T>
T* scratch(int64_t count) {
  static thread_local GrowingBuffer buffer;
  return static_cast<T*>(buffer.at_least(static_cast<size_t>(count) * sizeof(T)));
}

#if defined(__AVX512BW__)
// Two rows of 32 columns of 16 bits, alternating: the compiler's own code for this takes ten times as long.
inline void interleave_pairs(const void* even, const void* odd, void* out) {
  const __m512i a = _mm512_loadu_si512(even), b = _mm512_loadu_si512(odd);
  const __m512i lo = _mm512_unpacklo_epi16(a, b), hi = _mm512_unpackhi_epi16(a, b);  // inside each 128 bits
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(lo, first, hi));
  _mm512_storeu_si512(static_cast<char*>(out) + 64, _mm512_permutex2var_epi64(lo, second, hi));
}
#endif

// G rows of 32 columns side by side: out[j * G + g] = rows[g][j]; beyond `depth` rows and `cols` columns,
// zeros.
template <int64_t G, class From, class To>
inline void interleave_rows(const From* rows, int64_t n, int64_t depth, int64_t cols, To* out) {
  if (depth == G && cols >= kPanel) {
    if constexpr (!std::is_same_v<From, To>) {
      for (int64_t j = 0; j < kPanel; j += W) simd::store(out + j, simd::load(rows + j));
    } else {
#if defined(__AVX512BW__)
      if constexpr (G == 2) return interleave_pairs(rows, rows + n, out);
#endif
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

// `count` panels from panel p on of the row-major w[k, n], in groups of G. Rows are read in stretches, across
// all the panels: so many streams the prefetcher follows, and a page is used up before it is left.
constexpr int64_t kStretch = 32;
template <int64_t G, class From, class To>
void pack_panels(const From* w, int64_t k, int64_t n, int64_t p, int64_t count, To* out) {
  const int64_t elements = ceil_div(k, G) * G * kPanel;
  for (int64_t start = 0; start < k; start += kStretch) {
    const int64_t end = std::min(k, start + kStretch);
    for (int64_t q = 0; q < count; ++q) {
      const int64_t col = (p + q) * kPanel;
      for (int64_t row = start; row < end; row += G)
        interleave_rows<G>(w + row * n + col, n, std::min(G, k - row), n - col,
                           out + q * elements + row * kPanel);
    }
  }
}

template <class T>
void pack(const T* w, T* packed, int64_t k, int64_t n) {
  pack_panels<kGroup<T>>(w, k, n, 0, ceil_div(n, kPanel), packed);
}

// `count` panels from panel p on of a packed matrix of f16, or of pairs of bf16, as f32 with one k per row
// of 32.
template <class T>
void widen_panels(const T* packed, int64_t k, int64_t p, int64_t count, float* out) {
  const T* panel = packed + p * panel_elements<T>(k);
  const T* end = panel + count * panel_elements<T>(k);
  if constexpr (std::is_same_v<T, f16>) {
    for (; panel < end; panel += W, out += W) simd::store(out, simd::load(panel));
  } else {
    for (; panel < end; panel += 2 * kPanel, out += 2 * kPanel) {
      for (int64_t j = 0; j < kPanel; j += W) {
        const vi lanes = *reinterpret_cast<const vi*>(panel + 2 * j);
        simd::store(out + j, (vf)(lanes << 16));
        simd::store(out + kPanel + j, (vf)(lanes & static_cast<int32_t>(0xffff0000u)));
      }
    }
  }
}

}  // namespace flashperf::gemm
