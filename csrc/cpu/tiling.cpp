// tiling: the same product with three tiles.
//
// naive: a dot product per output. Every element of w is read from where the stride of its column puts it.
//
// bad_tile: 16 x 16 outputs, 16 steps of k at a time. The tile of the CUDA C++ Programming Guide's example
// of a product in shared memory (BLOCK_SIZE 16), and the smallest that Triton's dot takes: what a kernel has
// that nobody tuned. On a CPU its faults are that a load of w serves one vector of outputs, that each sum is
// a chain of dependent multiply-adds, and that sums go through memory every 16 steps.
//
// blocked: a tile as large as the registers allow, and operands brought into the order in which it reads
// them.
#include "gemm_float.h"
#include "gemm_i8.h"

namespace flashperf {
namespace {

using gemm::Source;
using gemm::W;

template <class T>
void naive(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += simd::to_float(x[i * k + p]) * simd::to_float(w[p * n + j]);
      y[i * n + j] = simd::from_float<T>(sum);
    }
  }
}

void naive_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += q[i * k + p] * w[p * n + j];
      acc[i * n + j] = sum;
    }
  }
}

// All panels, made before the first block of rows needs them; or a few at a time if there is no other.
template <int64_t G, class T>
Source<T> all_panels(const T* w, int64_t m, int64_t k, int64_t n) {
  Source<T> source = gemm::panels_of_rows<G, T>(w, k, n, true);
  if (m > 16) source.together = gemm::ceil_div(n, gemm::kPanel);
  return source;
}

// At most 16 rows by W columns: sums are loaded, 16 steps of k are added, sums are stored.
template <class P>
void untuned_tile(const typename P::A* a, int64_t a_row, int64_t rows, const typename P::B* b, int64_t b_step,
                  int64_t steps, typename P::Acc* c) {
  constexpr int64_t kDeep = 16 / P::kDepth;
  for (int64_t start = 0; start < steps; start += kDeep) {
    const int64_t end = std::min(steps, start + kDeep);
    for (int64_t row = 0; row < rows; ++row) {
      auto* sums = reinterpret_cast<typename P::V*>(c + row * 2 * W);
      auto sum = *sums;
      for (int64_t s = start; s < end; ++s)
        sum = P::multiply_add(sum, P::spread(a + row * a_row + s * P::kDepth), P::load(b + s * b_step));
      *sums = sum;
    }
  }
}

template <class P, class E>
void multiply_untuned(const typename P::A* a, int64_t a_row, int64_t m, int64_t steps, int64_t n,
                      const Source<typename P::B>& w, const E& epilogue) {
  using V = typename P::V;
  alignas(64) typename P::Acc c[16 * 2 * W];
  for (int64_t row0 = 0; row0 < m; row0 += 16) {
    const int64_t rows = std::min<int64_t>(16, m - row0);
    for (int64_t col = 0; col < n; col += 2 * W) {
      const int64_t inside = col % gemm::kPanel;
      auto panel = w.template panel<gemm::Buffer::kRight>(col / gemm::kPanel, row0 == 0 && inside == 0);
      panel.data += inside * P::kDepth;
      std::fill(c, c + rows * 2 * W, typename P::Acc{0});
      const auto* left = a + row0 * a_row;
      untuned_tile<P>(left, a_row, rows, panel.data, panel.step, steps, c);
      untuned_tile<P>(left, a_row, rows, panel.data + W * P::kDepth, panel.step, steps, c + W);
      for (int64_t r = 0; r < rows; ++r) {
        const auto* sums = reinterpret_cast<const V*>(c + r * 2 * W);
        epilogue(row0 + r, col, sums[0], sums[1]);
      }
    }
  }
}

#if defined(__AMX_TILE__)
// The same in one tile register, with the depth of one multiplication: each waits for the sums of the one
// before.
template <class T>
void untuned_tile(const gemm::amx::LeftTiles& a, const gemm::amx::RightTiles& b, int64_t chunks, uint8_t* c) {
  const auto step = [c](const uint8_t* left, int64_t stride, const uint8_t* right, const uint8_t*) {
    _tile_loadd(0, c, 128);
    _tile_loadd(1, left, stride);
    _tile_loadd(2, right, 128);
    if constexpr (std::is_same_v<T, bf16>) _tile_dpbf16ps(0, 1, 2);
    else _tile_dpbssd(0, 1, 2);
    _tile_stored(0, c, 128);
    gemm::amx::memory_barrier();
  };
  gemm::amx::for_chunks(a, b, b, {0, chunks, chunks}, step);
}

template <class T, class E>
void multiply_untuned_amx(const T* x, int64_t m, int64_t k, int64_t n, const Source<T>& w,
                          const E& epilogue) {
  using V = typename gemm::amx::Lanes<T>::V;
  alignas(64) uint8_t c[16 * 128];
  const int64_t chunks = gemm::ceil_div(k * static_cast<int64_t>(sizeof(T)), 64);
  const gemm::amx::Session session;
  for (int64_t row0 = 0; row0 < m; row0 += 16) {
    const auto a = gemm::amx::left_tiles(x, m, k, row0, 16);
    for (int64_t col = 0; col < n; col += gemm::kPanel) {
      const auto panel = w.template panel<gemm::Buffer::kRight>(col / gemm::kPanel, row0 == 0);
      const auto tiles = gemm::amx::right_tiles<gemm::Buffer::kEdge>(panel.data, k);
      std::memset(c, 0, sizeof c);
      gemm::amx::memory_barrier();
      untuned_tile<T>(a, tiles, chunks, c);
      untuned_tile<T>(a, tiles.plus(64), chunks, c + 64);
      for (int64_t r = 0; r < std::min<int64_t>(16, m - row0); ++r)
        epilogue(row0 + r, col, *reinterpret_cast<V*>(c + r * 128), *reinterpret_cast<V*>(c + r * 128 + 64));
    }
  }
}
#endif

template <class T>
void bad_tile(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  const gemm::Store<T> epilogue{y, n};
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (m > gemm::kFewRows<bf16>)
      return multiply_untuned_amx(x, m, k, n, all_panels<2>(w, m, k, n), epilogue);
  }
#endif
  multiply_untuned<gemm::Fma<T>>(gemm::as_float(x, m, k, k), k, m, k, n, gemm::rows_source(w, k, n),
                                 epilogue);
}

// W bytes of a row as int32, and products of 16 bits in lanes of 32: those of 32 bits are two operations
// each.
inline gemm::vi load_bytes(const int8_t* b) {
#if defined(__AVX512F__)
  return (gemm::vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
#elif defined(__AVX2__)
  return (gemm::vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)));
#else
  gemm::vi x;
  for (int i = 0; i < W; ++i) x[i] = b[i];
  return x;
#endif
}
inline gemm::vi multiply_shorts(gemm::vi a, gemm::vi b) {  // the upper half of every lane of a is zero
#if defined(__AVX512BW__)
  return (gemm::vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (gemm::vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return ((a << 16) >> 16) * b;
#endif
}

// A single row: 16 steps of k for all columns, then the next 16; the sums in memory are the output.
void bad_row_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t k, int64_t n) {
  std::fill(acc, acc + n, 0);
  for (int64_t start = 0; start < k; start += 16) {
    const int64_t depth = std::min<int64_t>(16, k - start);
    gemm::vi row[16];
    for (int64_t s = 0; s < depth; ++s) row[s] = (q[start + s] & 0xffff) - gemm::vi{};
    const int8_t* b = w + start * n;
    int64_t col = 0;
    for (; col + W <= n; col += W) {
      gemm::vi sum = gemm::load_some(acc + col, W);
      for (int64_t s = 0; s < depth; ++s) sum += multiply_shorts(row[s], load_bytes(b + s * n + col));
      gemm::store_some(acc + col, sum, W);
    }
    for (; col < n; ++col)
      for (int64_t s = 0; s < depth; ++s) acc[col] += q[start + s] * b[s * n + col];
  }
}

void bad_tile_i8(const int8_t* q, const int8_t* w, int32_t* acc, int64_t m, int64_t k, int64_t n) {
  const gemm::StoreInt epilogue{acc, n};
  if (m == 1) return bad_row_i8(q, w, acc, k, n);
  const auto quads = all_panels<4>(w, m, k, n);
  [[maybe_unused]] const int64_t groups = gemm::ceil_div(k, 4);
#if defined(__AMX_INT8__)
  multiply_untuned_amx(q, m, k, n, quads, epilogue);
#elif defined(__AVX512VNNI__)
  using P = gemm::DotQuads;
  int32_t* sums = gemm::scratch<gemm::Buffer::kHidden, int32_t>(n);
  gemm::sum_columns(w, k, n, sums);
  const auto* offsets = gemm::offsets_of<gemm::Buffer::kEdge>(sums, n);
  const gemm::WithOffset<gemm::StoreInt> corrected{epilogue, offsets, nullptr};
  multiply_untuned<P>(gemm::left_quads<P>(q, m, k), groups * 4, m, groups, n, quads, corrected);
#else
  using P = gemm::SignedQuads;
  multiply_untuned<P>(gemm::left_quads<P>(q, m, k), groups * 4, m, groups, n, quads, epilogue);
#endif
}

template <class T>
void blocked(const T* x, const T* w, T* y, int64_t m, int64_t k, int64_t n) {
  gemm::product_rows<T>(x, m, k, n, w, nullptr, gemm::Store<T>{y, n});
}

}  // namespace

#define FP_TILING(T, name)                                                              \
  FP_KERNEL_AS("gemm_" name "_naive", naive<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")       \
  FP_KERNEL_AS("gemm_" name "_bad_tile", bad_tile<T>, "x[m,k] w[k,n] -> y[m,n]; m k n") \
  FP_KERNEL_AS("gemm_" name "_blocked", blocked<T>, "x[m,k] w[k,n] -> y[m,n]; m k n")
FP_TILING(float, "f32")
FP_TILING(bf16, "bf16")
FP_TILING(f16, "f16")
FP_KERNEL_AS("gemm_i8_naive", naive_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")
FP_KERNEL_AS("gemm_i8_bad_tile", bad_tile_i8, "q[m,k] w[k,n] -> acc[m,n]; m k n")

}  // namespace flashperf
