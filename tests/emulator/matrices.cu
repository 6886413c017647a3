// WMMA, mma.sync and ldmatrix: one warp, one small product each.
#include <mma.h>

#include "../../csrc/cuda/common.cuh"

using namespace nvcuda;

namespace {
template <class T, class Memory, class Sum, int k>
__device__ void wmma_product(const Memory* a, const Memory* b, Sum* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, k, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, k, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, k, Sum> sum;
  wmma::fill_fragment(sum, Sum(1));
  wmma::load_matrix_sync(fa, a, k);
  wmma::load_matrix_sync(fb, b, k);
  wmma::mma_sync(sum, fa, fb, sum);
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= Sum(2);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
}  // namespace

// C = 2 (A B + 1): A 16 x k row-major, B k x 16 column-major, C 16 x 16 row-major.
extern "C" __global__ void wmma_half(const half* a, const half* b, float* c) {
  wmma_product<half, half, float, 16>(a, b, c);
}
extern "C" __global__ void wmma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  wmma_product<__nv_bfloat16, __nv_bfloat16, float, 16>(a, b, c);
}
extern "C" __global__ void wmma_tf32(const float* a, const float* b, float* c) {
  wmma_product<wmma::precision::tf32, float, float, 8>(a, b, c);
}
extern "C" __global__ void wmma_s8(const signed char* a, const signed char* b, int* c) {
  wmma_product<signed char, signed char, int, 16>(a, b, c);
}

// C (16 x 8) = A (16 x K) B (K x 8, column-major); a lane gathers its own registers from memory.
namespace {
template <class Sum, class Multiply>
__device__ void mma_product(const unsigned* a, const unsigned* b, Sum* c, Multiply multiply) {
  const int group = threadIdx.x / 4,
            number = threadIdx.x % 4;  // a row of A or column of B is 8 registers long
  unsigned fa[4], fb[2];
  Sum sum[4] = {0, 0, 0, 0};
  for (int r = 0; r < 4; ++r) fa[r] = a[(group + r % 2 * 8) * 8 + number + r / 2 * 4];
  for (int r = 0; r < 2; ++r) fb[r] = b[group * 8 + number + r * 4];
  multiply(sum, fa, fb);
  for (int r = 0; r < 4; ++r) c[(group + r / 2 * 8) * 8 + number * 2 + r % 2] = sum[r];
}
struct F16 {
  __device__ void operator()(float (&s)[4], unsigned (&a)[4], unsigned (&b)[2]) const { mma_f16(s, a, b); }
};
struct Bf16 {
  __device__ void operator()(float (&s)[4], unsigned (&a)[4], unsigned (&b)[2]) const { mma_bf16(s, a, b); }
};
struct Tf32 {
  __device__ void operator()(float (&s)[4], unsigned (&a)[4], unsigned (&b)[2]) const { mma_tf32(s, a, b); }
};
struct S8 {
  __device__ void operator()(int (&s)[4], unsigned (&a)[4], unsigned (&b)[2]) const { mma_s8(s, a, b); }
};
}  // namespace

extern "C" __global__ void mma_sync_f16(const unsigned* a, const unsigned* b, float* c) {
  mma_product(a, b, c, F16());
}
extern "C" __global__ void mma_sync_bf16(const unsigned* a, const unsigned* b, float* c) {
  mma_product(a, b, c, Bf16());
}
extern "C" __global__ void mma_sync_tf32(const unsigned* a, const unsigned* b, float* c) {
  mma_product(a, b, c, Tf32());
}
extern "C" __global__ void mma_sync_s8(const unsigned* a, const unsigned* b, int* c) {
  mma_product(a, b, c, S8());
}

// out[lane][register]: the four 8 x 8 tiles of `x` (32 rows of 8), by x4, x2 and transposed.
extern "C" __global__ void ldmatrix(const uint4* x, unsigned* out) {
  __shared__ uint4 rows[32];
  const int lane = threadIdx.x;
  rows[lane] = x[lane];
  __syncwarp();
  unsigned four[4], two[2], four_transposed[4], two_transposed[2];
  load_tiles(four, &rows[lane]);
  load_tiles(two, &rows[lane % 16 + 16]);
  load_tiles_transposed(four_transposed, &rows[lane]);
  load_tiles_transposed(two_transposed, &rows[lane % 16 + 16]);
  for (int r = 0; r < 4; ++r) out[12 * lane + r] = four[r], out[12 * lane + 6 + r] = four_transposed[r];
  for (int r = 0; r < 2; ++r) out[12 * lane + 4 + r] = two[r], out[12 * lane + 10 + r] = two_transposed[r];
}

extern "C" __global__ void rounded_to_tf32(const float* x, float* out) {
  out[threadIdx.x] = __uint_as_float(to_tf32(x[threadIdx.x]));
}
