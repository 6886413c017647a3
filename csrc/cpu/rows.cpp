// Rows of a model's state: embedding look-up, choice of rows, rotary positions and the append to the
// key/value cache. Every row of a step names its cache slot and its position, so prefill, decode, packed and
// padded batches are the same call; a row that names neither rightly writes nothing outside its own output.
#include "rowwise.h"

namespace flashperf {
namespace {
using namespace simd;

int64_t clamped(int32_t index, int64_t size) { return index < 0 ? 0 : index < size ? index : size - 1; }

template <class T>
void take_rows(const T* x, const int32_t* index, T* y, int64_t m, int64_t d, int64_t b) {
  for (int64_t i = 0; i < b; ++i)
    std::memcpy(y + i * d, x + clamped(index[i], m) * d, static_cast<size_t>(d) * sizeof(T));
}

template <class T>
void embed(const int32_t* tokens, const T* table, T* x, int64_t m, int64_t v, int64_t d) {
  take_rows(table, tokens, x, v, d, m);
}

// Rotate-half RoPE on one head of 2 * half elements: (a, b) -> (a cos - b sin, b cos + a sin).
template <class T>
void rotate(const T* x, const float* cos, const float* sin, T* y, int64_t half) {
  for (int64_t j = 0; j < half; j += kWidth) {
    const int64_t n = half - j < kWidth ? half - j : kWidth;
    const vf a = load_part(x + j, n), b = load_part(x + half + j, n);
    const vf c = load_part(cos + j, n), s = load_part(sin + j, n);
    store_part(y + j, a * c - b * s, n);
    store_part(y + half + j, b * c + a * s, n);
  }
}

struct CacheShape {
  int64_t slots, heads, length, width;  // k_cache[slots][heads][length][width]
};

// Appends one row; k and v hold all heads of it.
template <class T>
void append(const T* k, const T* v, const float* cos, const float* sin, T* k_cache, T* v_cache,
            CacheShape shape, int64_t slot, int64_t position) {
  for (int64_t h = 0; h < shape.heads; ++h) {
    const int64_t at = ((slot * shape.heads + h) * shape.length + position) * shape.width;
    rotate(k + h * shape.width, cos, sin, k_cache + at, shape.width / 2);
    std::memcpy(v_cache + at, v + h * shape.width, static_cast<size_t>(shape.width) * sizeof(T));
  }
}

// A row whose position lies outside the tables gets q = 0 and is not appended; one whose slot is outside the
// cache (padding has slot -1) gets its q and is not appended.
template <class T>
void rope_append(const T* qkv, const float* cos, const float* sin, const int32_t* slot,
                 const int32_t* position, T* k_cache, T* v_cache, T* q, int64_t m, int64_t w, int64_t t,
                 int64_t e, int64_t s, int64_t heads) {
  const int64_t d = heads * e, half = e / 2;
  const bool fits = w == 3 * d && e % 2 == 0;  // the signature's grammar cannot say so
  for (int64_t i = 0; i < m; ++i) {
    const T* row = qkv + i * w;
    T* out = q + i * d;
    if (!fits || position[i] < 0 || position[i] >= t) {
      std::memset(out, 0, static_cast<size_t>(d) * sizeof(T));
      continue;
    }
    const float* c = cos + position[i] * half;
    const float* sn = sin + position[i] * half;
    for (int64_t h = 0; h < heads; ++h) rotate(row + h * e, c, sn, out + h * e, half);
    if (slot[i] >= 0 && slot[i] < s)
      append(row + d, row + 2 * d, c, sn, k_cache, v_cache, {s, heads, t, e}, slot[i], position[i]);
  }
}

FP_KERNEL_TYPES("take_rows", take_rows, "x[m,d] index[b] -> y[b,d]; m d b")
FP_KERNEL_TYPES("embed", embed, "tokens[m] table[v,d] -> x[m,d]; m v d")
FP_KERNEL_TYPES("rope_append", rope_append,
                "qkv[m,w] cos[t,e/2] sin[t,e/2] slot[m] position[m] ~k_cache[s,heads,t,e] "
                "~v_cache[s,heads,t,e] -> q[m,heads,e]; m w t e s heads")

}  // namespace
}  // namespace flashperf
