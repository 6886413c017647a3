// attention: softmax(q k^T scale) v with the scores in registers, or in memory.
//
// m queries against t keys have m t scores per head. Materialised, they are written and read again by the
// softmax and by the product with v: more bytes than everything else together once t exceeds the head size.
// Online, a block walks over the keys with a running maximum and sum (Milakov and Gimelshein 2018;
// FlashAttention, Dao et al. 2022), and nothing of them leaves the SM. A window that skips blocks of keys
// saves their work; the same window as a mask over all keys saves nothing, and reads the mask.
//   Arguments: attention_args.cuh. online_f32 works by rows (attention_rows.cuh),
//   online_f16 and _bf16 by tiles (attention_tiles.cuh).
#include "attention_tiles.cuh"

// ---- kernels
// -------------------------------------------------------------------------------------------------

#define ARGUMENTS(T)                                                                                        \
  const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const int *__restrict__ slot,  \
      const int *__restrict__ position, const float *__restrict__ mask, int m, int heads, int e, int slots, \
      int t, int window, float scale
#define ATTENTION {q, k, v, slot, position, mask, m, heads, e, slots, t, window, scale}

#define ROW_KERNELS(type, T)                                                             \
  extern "C" __global__ void __launch_bounds__(32 * kRowWarps)                           \
      scores_##type(ARGUMENTS(T), float* __restrict__ scores) {                          \
    write_scores<T>(ATTENTION, scores);                                                  \
  }                                                                                      \
  extern "C" __global__ void __launch_bounds__(32 * kRowWarps)                           \
      values_##type(ARGUMENTS(T), const float* __restrict__ scores, T* __restrict__ y) { \
    weigh_values<T>(ATTENTION, scores, y);                                               \
  }

ROW_KERNELS(f32, float)
ROW_KERNELS(f16, __half)
ROW_KERNELS(bf16, __nv_bfloat16)

extern "C" __global__ void __launch_bounds__(256)
    add_mask(float* __restrict__ scores, const float* __restrict__ mask, int m, int t) {
  mask_scores(scores, mask, m, t);
}

extern "C" __global__ void __launch_bounds__(32 * kRowWarps) softmax(float* scores, int rows, int t) {
  softmax_rows(scores, rows, t, t);
}

extern "C" __global__ void __launch_bounds__(32 * kRowWarps)
    online_f32(ARGUMENTS(float), float* __restrict__ y) {
  online_rows<float>(ATTENTION, y);
}

#define TILE_KERNEL(name, T, E, aligned)                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads) name(ARGUMENTS(T), T* __restrict__ y) { \
    extern __shared__ __align__(128) unsigned char shared[];                                     \
    online_tiles<T, E, aligned>(ATTENTION, y, shared);                                           \
  }

TILE_KERNEL(online_f16_64, __half, 64, true)
TILE_KERNEL(online_f16_128, __half, 128, true)
TILE_KERNEL(online_f16_any_size, __half, 128, false)
TILE_KERNEL(online_bf16_64, __nv_bfloat16, 64, true)
TILE_KERNEL(online_bf16_128, __nv_bfloat16, 128, true)
TILE_KERNEL(online_bf16_any_size, __nv_bfloat16, 128, false)
