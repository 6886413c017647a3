// mma.sync and ldmatrix, with the register layouts that the PTX manual documents, so that a kernel which
// computes its own lane map is tested too. (PTX ISA, "Matrix fragments for mma.m16n8k8, k16, k32" and
// "ldmatrix".)
#pragma once

#include "scheduler.h"

namespace flashperf::emulator {

/// What the 32-bit registers of A and B hold: two, two, one or four elements.
enum class Element { kF16, kBf16, kTf32, kS8 };

/// d = a b + c with A 16 x k, B k x 8, C and D 16 x 8 in float: k is 16 for f16 and bf16, 8 for tf32.
void mma_m16n8(Element element, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
               const float (&c)[4], Site where);

/// As above with k = 32 signed bytes and sums in int.
void mma_m16n8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const int (&c)[4], Site where);

/// `count` (1, 2, 4) 8 x 8 matrices of 16-bit elements; lane 8 i + r gives the address of row r of matrix i.
void load_matrices(int count, bool transposed, unsigned* registers, const void* row, Site where);

/// d = a b + c of wmma fragments: row-major, spread over the lanes in pieces of equal length.
struct WmmaPayload {
  const void *a, *b, *c;
  void* d;
  int m, n, k;
};
void wmma_multiply_float(WmmaPayload& payload, Site where);
void wmma_multiply_int(WmmaPayload& payload, Site where);

}  // namespace flashperf::emulator
