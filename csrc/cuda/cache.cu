// cache: a producer and a consumer, in an order that keeps what lies between them in L2 or doesn't.
//
// t = x^2 + x is produced, y = 2 t - x is consumed. Whole array after whole array, t has left the cache when
// it is read if it is larger than L2 (50 MB on an H100): 4 passes over device memory. Chunk by chunk, each
// consumer finds its chunk in L2, at the price of more launches. The kernels are the same: only the order of
// the launches differs.
//   `first` and `count` elements of the whole, first a multiple of 4.
#include "common.cuh"

namespace {

DEVICE float produced(float x) { return x * x + x; }
DEVICE float consumed(float t, float x) { return 2.0f * t - x; }

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    produce(const float* __restrict__ x, float* __restrict__ t, long long first, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 4 <= count) {
    const float4 a = reinterpret_cast<const float4*>(x + first)[i];
    reinterpret_cast<float4*>(t + first)[i] =
        make_float4(produced(a.x), produced(a.y), produced(a.z), produced(a.w));
  } else {
    for (int j = 4 * i; j < count; ++j) t[first + j] = produced(x[first + j]);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    consume(const float* __restrict__ t, const float* __restrict__ x, float* __restrict__ y, long long first,
            int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 4 <= count) {
    const float4 a = reinterpret_cast<const float4*>(t + first)[i],
                 b = reinterpret_cast<const float4*>(x + first)[i];
    reinterpret_cast<float4*>(y + first)[i] =
        make_float4(consumed(a.x, b.x), consumed(a.y, b.y), consumed(a.z, b.z), consumed(a.w, b.w));
  } else {
    for (int j = 4 * i; j < count; ++j) y[first + j] = consumed(t[first + j], x[first + j]);
  }
}
