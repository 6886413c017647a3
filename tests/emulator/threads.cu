// Dimensions, barriers, shared memory and the order of threads.

extern "C" __global__ void dimensions(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  int* mine = out + (block * threads + thread) * 6;
  mine[0] = blockIdx.x, mine[1] = blockIdx.y, mine[2] = blockIdx.z;
  mine[3] = threadIdx.x, mine[4] = threadIdx.y, mine[5] = threadIdx.z;
}

// Every thread takes a ticket: the tickets show the order of the threads.
extern "C" __global__ void tickets(int* counter, int* out) { out[threadIdx.x] = atomicAdd(counter, 1); }

extern "C" __global__ void reverse_in_block(const float* x, float* y) {
  extern __shared__ float values[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = values[blockDim.x - 1 - threadIdx.x];
}

// Counts, for a predicate that holds for the first `limit` threads.
extern "C" __global__ void predicates(int* out, int limit) {
  const int holds = threadIdx.x < limit;
  const int count = __syncthreads_count(holds), all = __syncthreads_and(holds), any = __syncthreads_or(holds);
  out[3 * threadIdx.x] = count, out[3 * threadIdx.x + 1] = all, out[3 * threadIdx.x + 2] = any;
}

namespace {
template <int rows>
__device__ float first_of(float value) {
  __shared__ float grid[rows][rows + 1];
  const float before = grid[threadIdx.x % rows][0];
  __syncthreads();
  grid[threadIdx.x % rows][0] = value;
  return before;
}
}  // namespace

// What shared memory holds at the start of each block: static, static in a template, dynamic.
extern "C" __global__ void fresh_shared(float* out) {
  extern __shared__ __align__(16) float dynamic[];
  __shared__ float fixed[32];
  float* mine = out + 3 * (blockIdx.x * blockDim.x + threadIdx.x);
  mine[0] = fixed[threadIdx.x], mine[1] = first_of<32>(1.0f), mine[2] = dynamic[threadIdx.x];
  __syncthreads();
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;
}

extern "C" __global__ void __launch_bounds__(2 * 32, 1) bounded(int* out) { out[threadIdx.x] = 1; }

extern "C" __global__ void every_type(const signed char* a, const unsigned char* b, const float4* c,
                                      const half2* d, const __nv_bfloat16* e, double f, long long g,
                                      unsigned h, bool i, double* out) {
  out[0] = a[0] + b[0] + c[0].w + __high2float(d[0]) + __bfloat162float(e[0]) + f + double(g) + h + i;
}
