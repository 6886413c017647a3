// transfer: weights brought to where products read them, before they do.
//
// On a GPU this is a copy over PCIe or NVLink out of host memory. On a CPU both sides are the same memory,
// and the copy stands in for it: it costs bandwidth and evicts what was cached, at the speed of this
// machine's memory instead of a link's.
#include "rowwise.h"

namespace flashperf {
namespace {

template <class T>
void stage(const T* source, T* staged, int64_t n) {
  std::memcpy(staged, source, static_cast<size_t>(n) * sizeof(T));
}

FP_KERNEL_TYPES("stage", stage, "source[n] -> staged[n]; n")
FP_KERNEL_AS("stage_i8", stage<int8_t>, "source[n] -> staged[n]; n")

}  // namespace
}  // namespace flashperf
