// half and bfloat16, vector types, bit intrinsics, atomics.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {
template <class T>
__device__ void sixteen_bit(const T* a, const T* b, T* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T* mine = out + 8 * i;
  mine[0] = a[i] + b[i], mine[1] = a[i] - b[i], mine[2] = a[i] * b[i], mine[3] = a[i] / b[i];
  mine[4] = __hfma(a[i], b[i], a[i]), mine[5] = __hmax(a[i], b[i]), mine[6] = __hmin(a[i], b[i]),
  mine[7] = __habs(a[i]);
}
}  // namespace

extern "C" __global__ void half_arithmetic(const half* a, const half* b, half* out, int n) {
  sixteen_bit(a, b, out, n);
}
extern "C" __global__ void bf16_arithmetic(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out,
                                           int n) {
  sixteen_bit(a, b, out, n);
}

extern "C" __global__ void half_conversions(const float* x, half* out, float* back, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[i] = __float2half_rn(x[i]), back[i] = __half2float(out[i]);
}
extern "C" __global__ void bf16_conversions(const float* x, __nv_bfloat16* out, float* back, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[i] = __float2bfloat16(x[i]), back[i] = __bfloat162float(out[i]);
}

extern "C" __global__ void pairs(const half2* a, half2* out) {
  const float2 wide = __half22float2(a[threadIdx.x]);
  out[threadIdx.x] = __hfma2(a[threadIdx.x], __float2half2_rn(2.0f), __floats2half2_rn(wide.y, wide.x));
}

extern "C" __global__ void integers(const unsigned* x, int* out) {
  const unsigned v = x[threadIdx.x];
  int* mine = out + 8 * threadIdx.x;
  mine[0] = __popc(v), mine[1] = __ffs(v), mine[2] = __clz(v), mine[3] = __brev(v);
  mine[4] = __byte_perm(v, ~v, 0x7250), mine[5] = __dp4a((int)v, 0x01FF7F80, 7), mine[6] = __umulhi(v, v);
  mine[7] = __float2int_rn(__uint_as_float(v));
}

extern "C" __global__ void floats(const float* x, float* out) {
  const float v = x[threadIdx.x];
  float* mine = out + 6 * threadIdx.x;
  mine[0] = rsqrtf(v), mine[1] = __expf(-v), mine[2] = __fdividef(1.0f, v), mine[3] = __saturatef(v);
  mine[4] = __fmaf_rn(v, v, -1.0f), mine[5] = erff(v) + tanhf(v) + fmaxf(v, 0.5f) + exp2f(-v);
}

extern "C" __global__ void vectors(const float4* x, float4* out) {
  const float4 v = __ldg(&x[threadIdx.x]);
  const int2 swapped = make_int2(int(v.y), int(v.x));
  out[threadIdx.x] = make_float4(v.w, v.z, float(swapped.x), float(swapped.y));
}

extern "C" __global__ void atomics(int* i, unsigned* u, float* f, unsigned long long* l, half2* unused) {
  const int t = threadIdx.x;
  atomicAdd(&i[0], t), atomicSub(&i[1], t), atomicMax(&i[2], t), atomicMin(&i[3], -t);
  atomicAnd(&u[0], ~(1u << t)), atomicOr(&u[1], 1u << t), atomicXor(&u[2], 3u), atomicInc(&u[3], 4u);
  atomicAdd(&f[0], 0.5f), atomicAdd(&l[0], 1ull << 33);
  if (atomicCAS(&i[4], 0, t + 1) == 0) i[5] = t;
  atomicExch(&i[6], t);
}
