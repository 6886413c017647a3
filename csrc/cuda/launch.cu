// launch: z = alpha x + y over n elements, in one launch, in many, or by persistent blocks.
//
// A launch costs some microseconds on the host and a drain and a fill of the GPU. Split into N launches the
// work is the same and those costs come N times; a CUDA graph of the N removes most of the host's part. A
// persistent kernel launches as many blocks as run at once and lets each take the next chunk from a queue:
// one launch, for one atomic operation per chunk.
//   chunk: `first` and `count` elements of the whole. Chunks start at multiples of 4, for 16-byte accesses.
#include "queue.cuh"

namespace {

DEVICE float scaled_sum(float x, float y, float alpha) { return alpha * x + y; }

/// Element i of the chunk's groups of four; the last one may be shorter.
DEVICE void four_elements(const float* x, const float* y, float* z, int count, float alpha, int i) {
  if (4 * i + 4 <= count) {
    const float4 a = reinterpret_cast<const float4*>(x)[i], b = reinterpret_cast<const float4*>(y)[i];
    reinterpret_cast<float4*>(z)[i] = make_float4(scaled_sum(a.x, b.x, alpha), scaled_sum(a.y, b.y, alpha),
                                                  scaled_sum(a.z, b.z, alpha), scaled_sum(a.w, b.w, alpha));
  } else {
    for (int j = 4 * i; j < count; ++j) z[j] = scaled_sum(x[j], y[j], alpha);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    chunk(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, long long first,
          int count, float alpha) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i < count) four_elements(x + first, y + first, z + first, count, alpha, i);
}

extern "C" __global__ void __launch_bounds__(256)
    persistent(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, long long n,
               int chunk_size, float alpha, int* queue) {
  Queue* const work = reinterpret_cast<Queue*>(queue);
  const int chunks = static_cast<int>((n + chunk_size - 1) / chunk_size);
  for (int item = take_item(work); item < chunks; item = take_item(work)) {
    const long long first = static_cast<long long>(item) * chunk_size;
    const int count = static_cast<int>(min(static_cast<long long>(chunk_size), n - first));
    for (int i = threadIdx.x; 4 * i < count; i += blockDim.x)
      four_elements(x + first, y + first, z + first, count, alpha, i);
  }
  leave_queue(work);
}
