// Products on the AMX tile registers: eight tiles of 16 rows by 64 bytes, and an instruction that multiplies
// two of them into a third, 16 x 16 outputs with a depth of 32 bf16 or 64 int8 (a chunk).
//
// 32 rows by 32 columns of output take four tiles. The two tiles of each operand are used twice, which halves
// the loads, and four independent sums cover the latency of a multiplication: 52 cycles, of which 16 are its
// own (Intel's optimization manual, chapter on AMX).
#pragma once

#include "gemm_source.h"

namespace flashperf::gemm::amx {

// With a single row, tiles are all but empty, and vector instructions are faster.
constexpr int64_t kFewRows = 1;
constexpr int64_t kChunkBytes = 16 * 128;  // of a panel: 64 bytes of k in each of 32 columns

// Chunks of k that are gone through for all panels before the next, so that the rows in use stay in L1 (32
// rows of 512 bytes): a tile load from L2 takes longer than the multiplication that waits for it.
constexpr int64_t kChunksAtOnce = 8;

// The tile registers, configured and, in the end, marked as unused, so that a task switch need not save them.
struct Session {
  Session() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static const Config config;
    _tile_loadconfig(&config);
  }
  ~Session() { _tile_release(); }
};

// GCC 12's tile intrinsics are assembly that does not say that it touches memory.
inline void memory_barrier() { asm volatile("" ::: "memory"); }

// Where the tiles of 16 or 32 rows of the left operand are.
struct LeftTiles {
  const uint8_t* data;
  int64_t stride;  // bytes from row to row
};

// Up to `height` rows from `row` on. They are read where they are unless they must be copied, with zeros for
// what does not exist: rows that end inside a chunk (of which every tile row would also cross a cache line),
// a last block of fewer rows, and rows at a distance of a multiple of 2 KiB, of which L1 can hold only 24.
// Copies lie an odd number of cache lines apart.
template <class T>
LeftTiles left_tiles(const T* x, int64_t m, int64_t k, int64_t row, int64_t height) {
  const int64_t row_bytes = k * static_cast<int64_t>(sizeof(T)), rows = std::min(height, m - row);
  const uint8_t* from = reinterpret_cast<const uint8_t*>(x + row * k);
  if (rows % 16 == 0 && row_bytes % 64 == 0 && row_bytes % 2048 != 0) return {from, row_bytes};
  const int64_t padded = rows > 16 ? 32 : 16, whole = row_bytes / 64 * 64;
  const int64_t stride = (ceil_div(row_bytes, 64) | 1) * 64;
  uint8_t* copy = scratch<Buffer::kLeft, uint8_t>(padded * stride);
  const __mmask64 end = (1ull << (row_bytes - whole)) - 1;
  for (int64_t r = 0; r < rows; ++r, from += row_bytes) {
    uint8_t* to = copy + r * stride;
    for (int64_t at = 0; at < whole; at += 64) _mm512_store_si512(to + at, _mm512_loadu_si512(from + at));
    if (end) _mm512_store_si512(to + whole, _mm512_maskz_loadu_epi8(end, from + whole));
  }
  std::memset(copy + rows * stride, 0, static_cast<size_t>((padded - rows) * stride));
  return {copy, stride};
}

struct RightTiles {
  const uint8_t* body;  // rows of 128 bytes: one group of k of a panel
  const uint8_t* tail;  // the last chunk: in the body, or a copy that is padded with zeros to 16 rows
  RightTiles plus(int64_t bytes) const { return {body + bytes, tail + bytes}; }
};

template <Buffer Use, class T>
RightTiles right_tiles(const T* panel, int64_t k) {
  const int64_t groups = ceil_div(k, kGroup<T>), left = groups % 16;
  const uint8_t* body = reinterpret_cast<const uint8_t*>(panel);
  if (left == 0) return {body, body + (groups - 16) * 128};
  uint8_t* tail = scratch<Use, uint8_t>(kChunkBytes);
  std::memset(tail + left * 128, 0, static_cast<size_t>(kChunkBytes - left * 128));
  std::memcpy(tail, body + (groups - left) * 128, static_cast<size_t>(left) * 128);
  return {body, tail};
}

// Chunks [start, end) of `chunks`; sums of earlier ones are in memory.
struct Stretch {
  int64_t start, end, chunks;
};

template <class Step>
void for_chunks(const LeftTiles& a, const RightTiles& first, const RightTiles& second, Stretch k, Step step) {
  for (int64_t s = k.start; s < std::min(k.end, k.chunks - 1); ++s)
    step(a.data + s * 64, a.stride, first.body + s * kChunkBytes, second.body + s * kChunkBytes);
  if (k.end == k.chunks) step(a.data + (k.chunks - 1) * 64, a.stride, first.tail, second.tail);
}

#define FP_TILE_MULTIPLY(acc, a, b)                                 \
  if constexpr (std::is_same_v<T, bf16>) _tile_dpbf16ps(acc, a, b); \
  else _tile_dpbssd(acc, a, b);

// c[32, 32], 32-bit: 32 rows by two column tiles.
template <class T>
void tile_rows32(const LeftTiles& a, const RightTiles& first, const RightTiles& second, Stretch k,
                 uint8_t* c) {
  if (k.start == 0) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, 128);
    _tile_loadd(1, c + 64, 128);
    _tile_loadd(2, c + 16 * 128, 128);
    _tile_loadd(3, c + 16 * 128 + 64, 128);
  }
  const auto step = [](const uint8_t* left, int64_t stride, const uint8_t* right, const uint8_t* right2) {
    _tile_loadd(4, left, stride);
    _tile_loadd(5, left + 16 * stride, stride);
    _tile_loadd(6, right, 128);
    _tile_loadd(7, right2, 128);
    FP_TILE_MULTIPLY(0, 4, 6)
    FP_TILE_MULTIPLY(1, 4, 7)
    FP_TILE_MULTIPLY(2, 5, 6)
    FP_TILE_MULTIPLY(3, 5, 7)
  };
  for_chunks(a, first, second, k, step);
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 64, 128);
  _tile_stored(2, c + 16 * 128, 128);
  _tile_stored(3, c + 16 * 128 + 64, 128);
}

// c[16, 32]
template <class T>
void tile_rows16(const LeftTiles& a, const RightTiles& first, const RightTiles& second, Stretch k,
                 uint8_t* c) {
  if (k.start == 0) {
    _tile_zero(0);
    _tile_zero(1);
  } else {
    _tile_loadd(0, c, 128);
    _tile_loadd(1, c + 64, 128);
  }
  const auto step = [](const uint8_t* left, int64_t stride, const uint8_t* right, const uint8_t* right2) {
    _tile_loadd(4, left, stride);
    _tile_loadd(6, right, 128);
    _tile_loadd(7, right2, 128);
    FP_TILE_MULTIPLY(0, 4, 6)
    FP_TILE_MULTIPLY(1, 4, 7)
  };
  for_chunks(a, first, second, k, step);
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 64, 128);
}
#undef FP_TILE_MULTIPLY

template <class T>
struct Lanes {  // a row of an output tile
  using V = vf;
};
template <>
struct Lanes<int8_t> {
  using V = vi;
};

// Up to 32 rows of the output against the columns of one panel (or the same panel of two operands). `sums`
// has room for the columns of a panel; it returns the place for the next.
template <class T, class E>
uint8_t* multiply_panel(const LeftTiles& a, int64_t row, int64_t rows, RightTiles first, RightTiles second,
                        Stretch k, int64_t col0, int64_t n, uint8_t* sums, const E& epilogue) {
  using V = typename Lanes<T>::V;
  constexpr int64_t kColumns = E::kGated ? W : 2 * W;
  const auto run = rows > 16 ? tile_rows32<T> : tile_rows16<T>;
  for (int64_t col = col0; col < std::min(n, col0 + kPanel); col += kColumns) {
    memory_barrier();
    run(a, first, second, k, sums);
    memory_barrier();
    for (int64_t r = 0; k.end == k.chunks && r < rows; ++r) {
      const uint8_t* c = sums + r * 128;
      epilogue(row + r, col, *reinterpret_cast<const V*>(c), *reinterpret_cast<const V*>(c + 64));
    }
    first = first.plus(64);
    second = second.plus(64);
    if (k.start > 0 || k.end < k.chunks) sums += 32 * 128;
  }
  return sums;
}

// gemm::multiply on tiles, with the same sources and epilogues.
template <class T, class E>
void multiply(const T* x, int64_t m, int64_t k, int64_t n, const Source<T>& w, const Source<T>& w2,
              const E& epilogue) {
  static_assert(W == 16, "a row of an output tile is one vector");
  const int64_t panels = ceil_div(n, kPanel), chunks = ceil_div(k * static_cast<int64_t>(sizeof(T)), 64);
  const int64_t at_once = panels_at_once<T>(n, panel_elements<T>(k));
  const int64_t at_a_time = m > 32 ? kChunksAtOnce : chunks;  // one block of rows meets each panel once
  uint8_t* kept = scratch<Buffer::kSums, uint8_t>(std::min(at_once, panels) * 2 * 32 * 128);
  const Session session;
  for (int64_t p0 = 0; p0 < panels; p0 += at_once) {
    for (int64_t row = 0; row < m; row += 32) {
      const LeftTiles a = left_tiles(x, m, k, row, 32);
      for (int64_t start = 0; start < chunks; start += at_a_time) {
        const Stretch stretch{start, std::min(chunks, start + at_a_time), chunks};
        uint8_t* sums = kept;
        for (int64_t p = p0; p < std::min(panels, p0 + at_once); ++p) {
          const bool is_new = row == 0 && start == 0;
          const RightTiles first =
              right_tiles<Buffer::kEdge>(w.template panel<Buffer::kRight>(p, is_new).data, k);
          RightTiles second = first.plus(64);
          if constexpr (E::kGated)
            second = right_tiles<Buffer::kEdge2>(w2.template panel<Buffer::kRight2>(p, is_new).data, k);
          sums = multiply_panel<T>(a, row, std::min<int64_t>(32, m - row), first, second, stretch, p * kPanel,
                                   n, sums, epilogue);
        }
      }
    }
  }
}

}  // namespace flashperf::gemm::amx
