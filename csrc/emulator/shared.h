// Static shared memory. The build turns `__shared__ float tile[16][17];` into a static Shared<float[16][17]>
// and a reference to what it holds: a plain array, as ASan and UBSan want it, that the scheduler knows of.
#pragma once

#include <cstddef>

namespace flashperf::emulator {

/// Fill the bytes with NaN now and at the start of every block.
void register_shared(void* address, size_t bytes);

template <class T>
struct Shared {
  union {
    T value;
  };
  Shared() { register_shared(this, sizeof(T)); }
};

}  // namespace flashperf::emulator
