// How matrices lie in memory for the products: panels, packing, buffers.
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

// W lanes of 32 bits, whatever they were written as.
inline vi lanes_of(const void* p) {
  typedef int32_t Lanes __attribute__((vector_size(sizeof(vi)), aligned(1), may_alias));
  return *static_cast<const Lanes*>(p);
}

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

// How much of the right operand stays in L2 while the rows of the left operand pass by, and how much of the
// left operand, while the columns of the first pass by. Servers have 1 MiB of L2 or more, those with AMX 2.
#if defined(__AMX_TILE__)
template <class B>
constexpr int64_t kRightBytes = (std::is_same_v<B, float> ? 768 : 1024) << 10;
#else
template <class B>
constexpr int64_t kRightBytes = 768 << 10;
#endif
constexpr int64_t kLeftBytes = 128 << 10;

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
    const size_t page = bytes < kWorthHugePages ? 64 : kHugePage;
    bytes = (bytes + page - 1) / page * page;
    std::free(data_);
    bytes_ = 0;
    data_ = std::aligned_alloc(page, bytes);
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)  // in pages of 4 KiB, the panels in use are more than the first-level TLB holds
    if (page == kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    bytes_ = bytes;
  }

  static constexpr size_t kHugePage = 2 << 20, kWorthHugePages = kHugePage / 8;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class Buffer { kLeft, kRight, kRight2, kEdge, kEdge2, kRow, kHidden, kSums };
template <Buffer Use, class T>
T* scratch(int64_t count) {
  static thread_local GrowingBuffer buffer;
  return static_cast<T*>(buffer.at_least(static_cast<size_t>(count) * sizeof(T)));
}

// W elements, converted if the types differ.
template <class From, class To>
void copy_vector(const From* from, To* to) {
  if constexpr (std::is_same_v<From, To>) std::memcpy(to, from, W * sizeof(To));
  else simd::store(to, simd::load(from));
}

typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1)));
typedef uint16_t Words __attribute__((vector_size(16), aligned(1), may_alias));
inline Words words_of(const void* p) { return *static_cast<const Words*>(p); }
inline Words zip_low(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Words zip_high(Words a, Words b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline Words zip_low_bytes(Words a, Words b) {
  return (Words)__builtin_shufflevector((Bytes)a, (Bytes)b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                        7, 23);
}
inline Words zip_high_bytes(Words a, Words b) {
  return (Words)__builtin_shufflevector((Bytes)a, (Bytes)b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                        30, 15, 31);
}

// 32 columns of 2 rows of 16 bits, or of 4 rows of 8 bits, side by side: out[j * G + g] = rows[g][j]. In
// 128-bit vectors, which all instruction sets have: the compilers' code for the plain loop takes up to ten
// times as long.
template <class T>
void zip_rows(const T* rows, int64_t n, T* out) {
  Words* to = reinterpret_cast<Words*>(out);
  constexpr int64_t kLanes = 16 / sizeof(T);
  for (int64_t j = 0; j < kPanel; j += kLanes, rows += kLanes) {
    const Words r0 = words_of(rows), r1 = words_of(rows + n);
    if constexpr (sizeof(T) == 2) {
      *to++ = zip_low(r0, r1);
      *to++ = zip_high(r0, r1);
    } else {
      const Words r2 = words_of(rows + 2 * n), r3 = words_of(rows + 3 * n);
      const Words low01 = zip_low_bytes(r0, r1), low23 = zip_low_bytes(r2, r3);
      const Words high01 = zip_high_bytes(r0, r1), high23 = zip_high_bytes(r2, r3);
      *to++ = zip_low(low01, low23);
      *to++ = zip_high(low01, low23);
      *to++ = zip_low(high01, high23);
      *to++ = zip_high(high01, high23);
    }
  }
}

// 32 columns of G rows side by side, converted to To.
template <int64_t G, class From, class To>
void interleave_rows(const From* rows, int64_t n, To* out) {
  if constexpr (G > 1) zip_rows(rows, n, out);
  else
    for (int64_t j = 0; j < kPanel; j += W) copy_vector(rows + j, out + j);
}

// The same where only `depth` rows and `cols` columns exist; the rest is zeros.
template <int64_t G, class From, class To>
__attribute__((noinline)) void interleave_edge(const From* rows, int64_t n, int64_t depth, int64_t cols,
                                               To* out) {
  From block[G * kPanel] = {};
  for (int64_t g = 0; g < depth; ++g) std::copy_n(rows + g * n, std::min(cols, kPanel), block + g * kPanel);
  interleave_rows<G>(block, kPanel, out);
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
      const bool is_edge = n - col < kPanel;
      for (int64_t row = start; row < end; row += G) {
        const From* from = w + row * n + col;
        To* to = out + q * elements + row * kPanel;
        if (is_edge || k - row < G) interleave_edge<G>(from, n, std::min(G, k - row), n - col, to);
        else interleave_rows<G>(from, n, to);
      }
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
        const vi lanes = lanes_of(panel + 2 * j);
        simd::store(out + j, (vf)(lanes << 16));
        simd::store(out + kPanel + j, (vf)(lanes & static_cast<int32_t>(0xffff0000u)));
      }
    }
  }
}

}  // namespace flashperf::gemm
