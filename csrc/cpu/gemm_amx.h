// Products on the AMX tile registers: eight tiles of 16 rows by 64 bytes, and an instruction that multiplies
// two of them into a third, 16 x 16 outputs with a depth of 32 bf16 or 64 int8.
//
// 32 rows by 32 columns of output take four tiles, and the two tiles of each operand are used twice: two
// operand tiles fewer per multiplication than with a single output tile, and four independent accumulators to
// cover the 52 cycles that one multiplication takes from start to end.
#pragma once

#include "gemm_layout.h"

namespace flashperf::gemm::amx {

constexpr int64_t kFewRows = 4;  // below, tiles are mostly empty and the vector instructions are as fast
constexpr int64_t kTileBytes = 16 * 64;

struct Session {  // the tile registers, configured and, in the end, given back to the operating system as
                  // unused
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

// The compiler's tile intrinsics do not say that they touch memory (GCC before 13).
inline void memory_barrier() { asm volatile("" ::: "memory"); }

// The left operand as tiles: blocks of 32 rows (16 at the end, if that is enough), in them chunks of 64 bytes
// of k, in them the rows. Rows and columns that do not exist are zeros.
template <class T>
const uint8_t* left_tiles(const T* x, int64_t m, int64_t k) {
  const int64_t row_bytes = k * static_cast<int64_t>(sizeof(T)), chunks = ceil_div(row_bytes, 64);
  uint8_t* out = scratch<Buffer::kLeft, uint8_t>(ceil_div(m, 16) * chunks * kTileBytes);
  const uint8_t* in = reinterpret_cast<const uint8_t*>(x);
  for (int64_t row0 = 0; row0 < m; row0 += 32) {
    const int64_t height = m - row0 > 16 ? 32 : 16;
    uint8_t* block = out + row0 * chunks * 64;
    for (int64_t r = 0; r < height; ++r) {
      const uint8_t* row = in + (row0 + r) * row_bytes;
      for (int64_t c = 0; c < chunks; ++c) {
        uint8_t* to = block + (c * height + r) * 64;
        const int64_t bytes = row0 + r < m ? std::min<int64_t>(64, row_bytes - c * 64) : 0;
        if (bytes == 64) _mm512_store_si512(to, _mm512_loadu_si512(row + c * 64));
        else
          _mm512_store_si512(to, bytes > 0 ? _mm512_maskz_loadu_epi8((1ull << bytes) - 1, row + c * 64)
                                           : _mm512_setzero_si512());
      }
    }
  }
  return out;
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
  uint8_t* tail = scratch<Use, uint8_t>(16 * 128);
  std::memset(tail + left * 128, 0, static_cast<size_t>(16 - left) * 128);
  std::memcpy(tail, body + (groups - left) * 128, static_cast<size_t>(left) * 128);
  return {body, tail};
}

#define FP_TILE_MULTIPLY(acc, a, b)                                 \
  if constexpr (std::is_same_v<T, bf16>) _tile_dpbf16ps(acc, a, b); \
  else _tile_dpbssd(acc, a, b);

// c[32 or 16, 32]: 32 rows by two column tiles.
template <class T>
void tile_rows32(const uint8_t* a, RightTiles first, RightTiles second, int64_t chunks, uint8_t* c) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < chunks; ++s, a += 2 * kTileBytes) {
    const bool last = s == chunks - 1;
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_loadd(6, last ? first.tail : first.body + s * 2 * kTileBytes, 128);
    _tile_loadd(7, last ? second.tail : second.body + s * 2 * kTileBytes, 128);
    FP_TILE_MULTIPLY(0, 4, 6)
    FP_TILE_MULTIPLY(1, 4, 7)
    FP_TILE_MULTIPLY(2, 5, 6)
    FP_TILE_MULTIPLY(3, 5, 7)
  }
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 64, 128);
  _tile_stored(2, c + 16 * 128, 128);
  _tile_stored(3, c + 16 * 128 + 64, 128);
}

template <class T>
void tile_rows16(const uint8_t* a, RightTiles first, RightTiles second, int64_t chunks, uint8_t* c) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t s = 0; s < chunks; ++s, a += kTileBytes) {
    const bool last = s == chunks - 1;
    _tile_loadd(4, a, 64);
    _tile_loadd(6, last ? first.tail : first.body + s * 2 * kTileBytes, 128);
    _tile_loadd(7, last ? second.tail : second.body + s * 2 * kTileBytes, 128);
    FP_TILE_MULTIPLY(0, 4, 6)
    FP_TILE_MULTIPLY(1, 4, 7)
  }
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 64, 128);
}
#undef FP_TILE_MULTIPLY

// gemm::multiply on tiles; the same sources and epilogues.
template <class T>
struct Lanes {  // a row of an output tile
  using V = vf;
};
template <>
struct Lanes<int8_t> {
  using V = vi;
};

template <class T, class E>
void multiply(const T* x, int64_t m, int64_t k, int64_t n, const Source<T>& w, const Source<T>& w2,
              const E& epilogue) {
  static_assert(W == 16, "a row of an output tile is one vector");
  using V = typename Lanes<T>::V;
  constexpr int64_t kColumns = E::kGated ? W : 2 * W;
  const uint8_t* a = left_tiles(x, m, k);
  const int64_t chunks = ceil_div(k * static_cast<int64_t>(sizeof(T)), 64);
  const int64_t height = left_rows(chunks * 64);
  alignas(64) uint8_t c[32 * 128];
  const Session session;
  for (int64_t row0 = 0; row0 < m; row0 += height) {
    for (int64_t col0 = 0; col0 < n; col0 += kPanel) {
      const T* panel = w.template panel<Buffer::kRight>(col0 / kPanel, row0 == 0).data;
      RightTiles first = right_tiles<Buffer::kEdge>(panel, k), second = first.plus(64);
      if constexpr (E::kGated)
        second =
            right_tiles<Buffer::kEdge2>(w2.template panel<Buffer::kRight2>(col0 / kPanel, row0 == 0).data, k);
      for (int64_t col = col0; col < std::min(n, col0 + kPanel); col += kColumns) {
        for (int64_t row = row0; row < std::min(m, row0 + height); row += 32) {
          const auto run = m - row > 16 ? tile_rows32<T> : tile_rows16<T>;
          memory_barrier();
          run(a + row * chunks * 64, first, second, chunks, c);
          memory_barrier();
          for (int64_t r = 0; r < std::min<int64_t>(32, m - row); ++r)
            epilogue(row + r, col, *reinterpret_cast<V*>(c + r * 128),
                     *reinterpret_cast<V*>(c + r * 128 + 64));
        }
        first = first.plus(64);
        second = second.plus(64);
      }
    }
  }
}

}  // namespace flashperf::gemm::amx
