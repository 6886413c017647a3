// The kernel list of one instruction-set level, and the door through which the Python module reads it.
#include "kernel.h"

namespace flashperf {
KernelEntry*& kernel_list() {
  static KernelEntry* head = nullptr;
  return head;
}
}  // namespace flashperf

extern "C" __attribute__((visibility("default"))) const flashperf::KernelEntry* flashperf_kernels() {
  return flashperf::kernel_list();
}
