// nvcuda::wmma. Which lane holds which element is unspecified in CUDA, so the map here is our own: lane l
// holds piece l of the row-major matrix. Shapes m16n16k16 and k8 (tf32), m32n8k16, m8n32k16.
#pragma once

#include <type_traits>

#include "matrix.h"
#include "narrow.h"
#include "trace.h"
#include "warp.h"

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <class T>
using Storage = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr int num_elements = rows * columns / 32;
  static_assert(k == (std::is_same_v<T, precision::tf32> ? 8 : 16) || std::is_same_v<Use, accumulator>);
  using element_type = Storage<T>;
  element_type x[num_elements];
};

template <class Use, int m, int n, int k, class T, class Layout, class Value>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, Value value) {
  for (auto& element : f.x) element = value;
}

/// Visit (element of the fragment, its offset in memory).
template <class Fragment, class Visit>
void for_each_element(Fragment& f, unsigned leading, bool rows_first, Visit visit) {
  const int first = flashperf::emulator::lane_index() * f.num_elements;
  flashperf::emulator::begin_request();
  for (int i = 0; i < f.num_elements; ++i) {
    const unsigned row = (first + i) / f.columns, column = (first + i) % f.columns;
    visit(f.x[i], rows_first ? row * leading + column : column * leading + row);
  }
  flashperf::emulator::end_request();
}

/// All lanes must come here; after the accesses, so that what another lane has not written yet shows as NaN.
inline void converge(const char* name, FlashperfSite where) {
  flashperf::emulator::warp_exchange(name, ~0u, nullptr, nullptr, where);
}

template <class Use, int m, int n, int k, class T, class Layout, class Memory>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const Memory* p, unsigned leading,
                      FlashperfSite where = FlashperfSite::here()) {
  for_each_element(f, leading, std::is_same_v<Layout, row_major>, [p](auto& x, unsigned at) { x = p[at]; });
  converge("wmma::load_matrix_sync", where);
}

template <int m, int n, int k, class T, class Memory>
void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const Memory* p, unsigned leading,
                      layout_t layout, FlashperfSite where = FlashperfSite::here()) {
  for_each_element(f, leading, layout == mem_row_major, [p](auto& x, unsigned at) { x = p[at]; });
  converge("wmma::load_matrix_sync", where);
}

template <int m, int n, int k, class T, class Memory>
void store_matrix_sync(Memory* p, const fragment<accumulator, m, n, k, T>& f, unsigned leading,
                       layout_t layout, FlashperfSite where = FlashperfSite::here()) {
  for_each_element(f, leading, layout == mem_row_major, [p](const auto& x, unsigned at) { p[at] = x; });
  converge("wmma::store_matrix_sync", where);
}

template <class Sum, class Source, class Fragment>
void widen(Sum* to, const Fragment& f) {
  for (int i = 0; i < f.num_elements; ++i) {
    Sum value = static_cast<Sum>(f.x[i]);
    if constexpr (std::is_same_v<Source, precision::tf32>)  // the hardware reads 10 bits of mantissa
      value = flashperf::emulator::float_from_bits(flashperf::emulator::float_bits(value) & ~0x1FFFu);
    to[i] = value;
  }
}

template <int m, int n, int k, class A, class LayoutA, class B, class LayoutB, class C>
void mma_sync(fragment<accumulator, m, n, k, C>& d, const fragment<matrix_a, m, n, k, A, LayoutA>& a,
              const fragment<matrix_b, m, n, k, B, LayoutB>& b, const fragment<accumulator, m, n, k, C>& c,
              FlashperfSite where = FlashperfSite::here()) {
  using Sum = std::conditional_t<std::is_integral_v<C>, int, float>;
  Sum a_piece[m * k / 32], b_piece[k * n / 32], c_piece[m * n / 32], d_piece[m * n / 32];
  widen<Sum, A>(a_piece, a);
  widen<Sum, B>(b_piece, b);
  widen<Sum, C>(c_piece, c);
  flashperf::emulator::WmmaPayload payload{a_piece, b_piece, c_piece, d_piece, m, n, k};
  if constexpr (std::is_integral_v<C>) flashperf::emulator::wmma_multiply_int(payload, where);
  else flashperf::emulator::wmma_multiply_float(payload, where);
  for (int i = 0; i < d.num_elements; ++i) d.x[i] = static_cast<C>(d_piece[i]);
}

/// Round to tf32: to nearest, ties away from zero (cvt.rna).
inline float __float_to_tf32(float value) {
  return flashperf::emulator::float_from_bits((flashperf::emulator::float_bits(value) + 0x1000u) & ~0x1FFFu);
}

}  // namespace nvcuda::wmma
