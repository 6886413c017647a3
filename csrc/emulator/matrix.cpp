#include "matrix.h"

#include <cstring>
#include <vector>

#include "narrow.h"
#include "sanitizers.h"
#include "thread.h"
#include "trace.h"

namespace flashperf::emulator {

namespace {

struct MmaPayload {
  const unsigned *a, *b;
  const void* c;
  void* d;
};

template <Element element>
struct Format;
template <>
struct Format<Element::kF16> {
  using Sum = float;
  static constexpr int per_register = 2;
  static float get(unsigned bits, int i) { return HalfFormat::widen(static_cast<uint16_t>(bits >> 16 * i)); }
};
template <>
struct Format<Element::kBf16> {
  using Sum = float;
  static constexpr int per_register = 2;
  static float get(unsigned bits, int i) {
    return Bfloat16Format::widen(static_cast<uint16_t>(bits >> 16 * i));
  }
};
template <>
struct Format<Element::kTf32> {
  using Sum = float;
  static constexpr int per_register = 1;
  static float get(unsigned bits, int) {
    return float_from_bits(bits & ~0x1FFFu);
  }  // 10 bits of mantissa are read
};
template <>
struct Format<Element::kS8> {
  using Sum = int;
  static constexpr int per_register = 4;
  static int get(unsigned bits, int i) { return static_cast<signed char>(bits >> 8 * i); }
};

/// Row and column of accumulator register r of a lane.
int sum_row(int lane, int r) { return lane / 4 + r / 2 * 8; }
int sum_column(int lane, int r) { return lane % 4 * 2 + r % 2; }

template <Element element>
void combine_mma(void* const (&lanes)[32], unsigned) {
  using F = Format<element>;
  using Sum = typename F::Sum;
  constexpr int per = F::per_register, k_size = 8 * per;
  Sum a[16][k_size], b[k_size][8], sum[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaPayload& p = *static_cast<MmaPayload*>(lanes[lane]);
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < per; ++i)
        a[lane / 4 + r % 2 * 8][lane % 4 * per + r / 2 * 4 * per + i] = F::get(p.a[r], i);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < per; ++i) b[lane % 4 * per + r * 4 * per + i][lane / 4] = F::get(p.b[r], i);
    for (int r = 0; r < 4; ++r) sum[sum_row(lane, r)][sum_column(lane, r)] = static_cast<const Sum*>(p.c)[r];
  }
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < k_size; ++k)
      for (int n = 0; n < 8; ++n) sum[m][n] += a[m][k] * b[k][n];
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r)
      static_cast<Sum*>(static_cast<MmaPayload*>(lanes[lane])->d)[r] =
          sum[sum_row(lane, r)][sum_column(lane, r)];
}

struct LoadPayload {
  uint16_t row[8];
  unsigned* registers;
};

template <int count, bool transposed>
void combine_load(void* const (&lanes)[32], unsigned) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < count; ++matrix) {
      unsigned packed = 0;
      for (int i = 0; i < 2; ++i) {
        const int row = transposed ? lane % 4 * 2 + i : lane / 4;
        const int column = transposed ? lane / 4 : lane % 4 * 2 + i;
        packed |= static_cast<unsigned>(static_cast<LoadPayload*>(lanes[8 * matrix + row])->row[column])
                  << 16 * i;
      }
      static_cast<LoadPayload*>(lanes[lane])->registers[matrix] = packed;
    }
  }
}

/// A plain loop: a call of memcpy would be looked at by ThreadSanitizer, which sees no barrier here.
template <class Sum>
void copy_piece(Sum* to, const void* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<const Sum*>(from)[i];
}

template <class Sum>
void combine_wmma(void* const (&lanes)[32], unsigned) {
  const WmmaPayload& first = *static_cast<WmmaPayload*>(lanes[0]);
  const int m_size = first.m, n_size = first.n, k_size = first.k;
  std::vector<Sum> a(m_size * k_size), b(k_size * n_size), sum(m_size * n_size);
  for (int lane = 0; lane < 32; ++lane) {
    const WmmaPayload& p = *static_cast<WmmaPayload*>(lanes[lane]);
    const size_t a_piece = a.size() / 32, b_piece = b.size() / 32, c_piece = sum.size() / 32;
    copy_piece(&a[lane * a_piece], p.a, a_piece);
    copy_piece(&b[lane * b_piece], p.b, b_piece);
    copy_piece(&sum[lane * c_piece], p.c, c_piece);
  }
  for (int m = 0; m < m_size; ++m)
    for (int k = 0; k < k_size; ++k)
      for (int n = 0; n < n_size; ++n) sum[m * n_size + n] += a[m * k_size + k] * b[k * n_size + n];
  for (int lane = 0; lane < 32; ++lane)
    copy_piece(static_cast<Sum*>(static_cast<WmmaPayload*>(lanes[lane])->d), &sum[lane * (sum.size() / 32)],
               sum.size() / 32);
}

/// These operations are for whole warps.
void exchange(const char* name, void* payload, Combine combine, Site where) {
  if (blockDim.x * blockDim.y * blockDim.z < current_thread()->warp * 32u + 32u)
    fail(std::string(name) + text(where) + " in a warp of fewer than 32 threads");
  warp_exchange(name, ~0u, payload, combine, where);
}

}  // namespace

void mma_m16n8(Element element, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
               const float (&c)[4], Site where) {
  MmaPayload payload{a, b, c, d};
  const Combine combine = element == Element::kF16    ? combine_mma<Element::kF16>
                          : element == Element::kBf16 ? combine_mma<Element::kBf16>
                                                      : combine_mma<Element::kTf32>;
  exchange("mma.sync", &payload, combine, where);
}

void mma_m16n8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const int (&c)[4],
                  Site where) {
  MmaPayload payload{a, b, c, d};
  exchange("mma.sync", &payload, combine_mma<Element::kS8>, where);
}

void load_matrices(int count, bool transposed, unsigned* registers, const void* row, Site where) {
  LoadPayload payload{{}, registers};
  const int lane = lane_index();
  if (lane < 8 * count) {  // the addresses of the other lanes aren't used
    if (reinterpret_cast<uintptr_t>(row) % 16)
      fail("misaligned: ldmatrix" + text(where) + ": the row address of lane " + std::to_string(lane) +
           " is not a multiple of 16 bytes");
    note_read(row, sizeof payload.row);
    note_access(row, sizeof payload.row, AccessKind::kRead, __builtin_return_address(0));
    memcpy(payload.row, row, sizeof payload.row);
  }
  static constexpr Combine combine[3][2] = {{combine_load<1, false>, combine_load<1, true>},
                                            {combine_load<2, false>, combine_load<2, true>},
                                            {combine_load<4, false>, combine_load<4, true>}};
  exchange("ldmatrix", &payload, combine[count / 2][transposed], where);
}

void wmma_multiply_float(WmmaPayload& payload, Site where) {
  exchange("wmma::mma_sync", &payload, combine_wmma<float>, where);
}

void wmma_multiply_int(WmmaPayload& payload, Site where) {
  exchange("wmma::mma_sync", &payload, combine_wmma<int>, where);
}

}  // namespace flashperf::emulator
