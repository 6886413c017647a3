// Products on the AMX tile registers: eight tiles of 16 rows by 64 bytes, and an instruction that multiplies
// two of them into a third, 16 x 16 outputs with a depth of 32 bf16 or 64 int8.
//
// 32 rows by 32 columns of output take four tiles, and the two tiles of each operand are used twice: two
// operand tiles fewer per multiplication than with a single output tile, and four independent accumulators to
// cover the 52 cycles that one multiplication takes from start to end.
#pragma once

#include "gemm_source.h"

namespace flashperf::gemm::amx {

constexpr int64_t kFewRows = 4;  // below, tiles are mostly empty and the vector instructions are as fast
constexpr int64_t kChunkBytes = 16 * 128;  // of a panel: 64 bytes of k in each of 32 columns

// Chunks of k that are gone through for all rows before the next: what is in use of a panel, and the rows
// that pass by, then stay in L1. A tile load from L2 takes longer than the multiplication that waits for it.
template <class T>
constexpr int64_t kStretch = std::is_same_v<T, bf16> ? 8 : 16;

// Every CPU with AMX has 2 MiB of L2.
constexpr int64_t rows_at_once(int64_t row_bytes) { return 2 * left_rows(row_bytes); }

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

// Where the tiles of 32 (or 16) rows of the left operand are, chunk by chunk of 64 bytes of k.
struct LeftTiles {
  const uint8_t* body;  // row-major, `stride` bytes from row to row
  int64_t stride;
  const uint8_t* tail;  // the last chunk: in the body, or a copy that is padded with zeros to 64 bytes
  int64_t tail_stride;
};

// The left operand is read where it is, except for what a whole tile would read too much of: the end of rows
// that are not a multiple of 64 bytes, and a last block of fewer than 32 rows. Those are copied, with zeros
// around.
class Left {
 public:
  template <class T>
  Left(const T* x, int64_t m, int64_t k)
      : x_(reinterpret_cast<const uint8_t*>(x)),
        row_bytes_(k * static_cast<int64_t>(sizeof(T))),
        whole_(m / 32 * 32) {
    const int64_t left = row_bytes_ % 64;
    if (left) {
      tails_ = scratch<Buffer::kLeft, uint8_t>(whole_ * 64);
      for (int64_t row = 0; row < whole_; ++row)
        copy(x_ + (row + 1) * row_bytes_ - left, left, tails_ + row * 64);
    }
    const int64_t height = m - whole_ > 16 ? 32 : 16, length = chunks() * 64;
    last_ = scratch<Buffer::kRow, uint8_t>(height * length);
    std::memset(last_, 0, static_cast<size_t>(height * length));
    for (int64_t row = whole_; row < m; ++row)
      std::memcpy(last_ + (row - whole_) * length, x_ + row * row_bytes_, static_cast<size_t>(row_bytes_));
  }

  int64_t chunks() const { return ceil_div(row_bytes_, 64); }

  LeftTiles at(int64_t row) const {
    const int64_t end = (chunks() - 1) * 64, length = chunks() * 64;
    if (row == whole_) return {last_, length, last_ + end, length};
    const uint8_t* body = x_ + row * row_bytes_;
    if (tails_) return {body, row_bytes_, tails_ + row * 64, 64};
    return {body, row_bytes_, body + end, row_bytes_};
  }

 private:
  static void copy(const uint8_t* from, int64_t bytes, uint8_t* to) {
    _mm512_store_si512(to, _mm512_maskz_loadu_epi8((1ull << bytes) - 1, from));
  }

  const uint8_t* x_;
  int64_t row_bytes_, whole_;
  uint8_t* tails_ = nullptr;
  uint8_t* last_ = nullptr;
};

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

// c[32, 32]: 32 rows by two column tiles.
template <class T>
void tile_rows32(const LeftTiles& a, const RightTiles& first, const RightTiles& second, int64_t start,
                 int64_t end, int64_t chunks, uint8_t* c) {
  if (start == 0) {
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
  for (int64_t s = start; s < std::min(end, chunks - 1); ++s)
    step(a.body + s * 64, a.stride, first.body + s * kChunkBytes, second.body + s * kChunkBytes);
  if (end == chunks) step(a.tail, a.tail_stride, first.tail, second.tail);
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 64, 128);
  _tile_stored(2, c + 16 * 128, 128);
  _tile_stored(3, c + 16 * 128 + 64, 128);
}

// c[16, 32]
template <class T>
void tile_rows16(const LeftTiles& a, const RightTiles& first, const RightTiles& second, int64_t start,
                 int64_t end, int64_t chunks, uint8_t* c) {
  if (start == 0) {
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
  for (int64_t s = start; s < std::min(end, chunks - 1); ++s)
    step(a.body + s * 64, a.stride, first.body + s * kChunkBytes, second.body + s * kChunkBytes);
  if (end == chunks) step(a.tail, a.tail_stride, first.tail, second.tail);
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
  const Left a(x, m, k);
  const int64_t chunks = a.chunks();
  const int64_t height = rows_at_once(k * static_cast<int64_t>(sizeof(T)));
  uint8_t* sums = scratch<Buffer::kSums, uint8_t>(ceil_div(std::min(m, height), 32) * 32 * 128);
  const Session session;
  for (int64_t row0 = 0; row0 < m; row0 += height) {
    const int64_t end = std::min(m, row0 + height);
    for (int64_t col0 = 0; col0 < n; col0 += kPanel) {
      const T* panel = w.template panel<Buffer::kRight>(col0 / kPanel, row0 == 0).data;
      RightTiles first = right_tiles<Buffer::kEdge>(panel, k), second = first.plus(64);
      if constexpr (E::kGated)
        second =
            right_tiles<Buffer::kEdge2>(w2.template panel<Buffer::kRight2>(col0 / kPanel, row0 == 0).data, k);
      for (int64_t col = col0; col < std::min(n, col0 + kPanel); col += kColumns) {
        for (int64_t start = 0; start < chunks; start += kStretch<T>) {
          const int64_t stop = std::min<int64_t>(chunks, start + kStretch<T>);
          for (int64_t row = row0; row < end; row += 32) {
            const auto run = m - row > 16 ? tile_rows32<T> : tile_rows16<T>;
            uint8_t* c = sums + (chunks > kStretch<T> ? (row - row0) * 128 : 0);
            memory_barrier();
            run(a.at(row), first, second, start, stop, chunks, c);
            memory_barrier();
            if (stop < chunks) continue;
            for (int64_t r = 0; r < std::min<int64_t>(32, m - row); ++r)
              epilogue(row + r, col, *reinterpret_cast<V*>(c + r * 128),
                       *reinterpret_cast<V*>(c + r * 128 + 64));
          }
        }
        first = first.plus(64);
        second = second.plus(64);
      }
    }
  }
}

}  // namespace flashperf::gemm::amx
