// Tiles of a row-major matrix from global to shared memory with cp.async, swizzled so that ldmatrix and
// 128-bit loads meet no bank conflict.
//
// Shared memory has 32 banks of 4 bytes: eight 16-byte chunks are read at a time, and they must lie in
// different eighths of a 128-byte line. Chunk c of row r is therefore stored at place c ^ f(r), with f chosen
// so that eight consecutive rows put the same chunk into eight different eighths.
#pragma once

#include "common.cuh"

constexpr int kChunkBytes = 16;

/// A tile of `rows` rows of `row_bytes` (64 or a multiple of 128) bytes. `step` is how many places a row
/// moves on.
template <int rows, int row_bytes, int step = 1>
struct TileShape {
  static constexpr int chunks_per_row = row_bytes / kChunkBytes;
  static constexpr int chunks = rows * chunks_per_row;
  static constexpr int bytes = rows * row_bytes;

  /// Byte offset of a chunk. Two rows of 64 bytes share a line: only every second row moves on.
  DEVICE static int offset(int row, int chunk) {
    const int place = row_bytes == 64 ? chunk ^ (row / 2 % 4) : chunk ^ (row * step % 8);
    return row * row_bytes + place * kChunkBytes;
  }
};

/// A row-major matrix in global memory. `aligned`: every row starts at a multiple of 16 bytes, and columns
/// are a multiple of 16 bytes' worth of elements.
template <class T, bool aligned>
struct Matrix {
  using Element = T;
  static constexpr bool kAligned = aligned;
  const T* data;
  int rows, columns;
  int stride = columns;  // elements from one row to the next

  DEVICE bool has(int row, int column) const { return row < rows && column < columns; }
  DEVICE const T* at(int row, int column) const { return data + static_cast<size_t>(row) * stride + column; }
};

/// Two matrices of one shape as one, in turns of `group` columns: a tile of it holds the same columns of
/// both.
template <class T, bool aligned, int group>
struct Interleaved {
  using Element = T;
  static constexpr bool kAligned = aligned;
  Matrix<T, aligned> even, odd;

  DEVICE static int source_column(int column) { return column / (2 * group) * group + column % group; }
  DEVICE bool has(int row, int column) const { return even.has(row, source_column(column)); }
  DEVICE const T* at(int row, int column) const {
    return (column / group % 2 ? odd : even).at(row, source_column(column));
  }
};

/// Copy the tile that starts at (row, column); what lies outside the matrix becomes zero. From an aligned
/// matrix the copies are asynchronous: commit and wait. From others they go element by element through
/// registers.
template <class Shape, int threads, class Source>
DEVICE void copy_tile(unsigned char* tile, const Source& from, int row, int column) {
  using T = typename Source::Element;
  constexpr int per_chunk = kChunkBytes / sizeof(T);
  static_assert(Shape::chunks % threads == 0);
#pragma unroll(Source::kAligned ? Shape::chunks / threads : 1)
  for (int i = 0; i < Shape::chunks / threads; ++i) {
    const int index = i * threads + threadIdx.x;
    const int tile_row = index / Shape::chunks_per_row, chunk = index % Shape::chunks_per_row;
    const int r = row + tile_row, c = column + chunk * per_chunk;
    unsigned char* target = tile + Shape::offset(tile_row, chunk);
    if constexpr (Source::kAligned) {
      const bool inside = from.has(r, c);  // a chunk is inside or outside as a whole
      copy_async_16(target, inside ? from.at(r, c) : from.at(0, 0), inside);
    } else {
      Pack<T> values;
#pragma unroll
      for (int j = 0; j < per_chunk; ++j) values.at[j] = from.has(r, c + j) ? *from.at(r, c + j) : T(0);
      *reinterpret_cast<Pack<T>*>(target) = values;
    }
  }
}

/// The multistage loop: `load(tile, stage)` fetches ahead while `compute(tile, stage)` works, a barrier per
/// tile.
template <int stages, class Load, class Compute>
DEVICE void pipelined_loop(int tiles, Load load, Compute compute) {
#pragma unroll
  for (int tile = 0; tile < stages - 1; ++tile) {
    if (tile < tiles) load(tile, tile);
    commit_copies();  // empty groups keep the count of groups equal to the count of tiles
  }
  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<stages - 2>();
    __syncthreads();  // this tile has arrived for all, and all are done with the stage that is filled next
    const int next = tile + stages - 1;
    if (next < tiles) load(next, next % stages);
    commit_copies();
    compute(tile, tile % stages);
  }
}
