// The C functions through which flashperf/emulator.py finds and launches the kernels of a library.
#include <cstring>

#include "publish.h"

namespace flashperf::emulator {

KernelEntry*& kernel_list() {
  static KernelEntry* first = nullptr;
  return first;
}

}  // namespace flashperf::emulator

using flashperf::emulator::KernelEntry;

#define EXPORT extern "C" __attribute__((visibility("default")))

/// The name of kernel number `index`, or null after the last.
EXPORT const char* emulator_kernel_name(int index) {
  const KernelEntry* entry = flashperf::emulator::kernel_list();
  while (entry && index--) entry = entry->next;
  return entry ? entry->name : nullptr;
}

static const KernelEntry* find(const char* name) {
  const KernelEntry* entry = flashperf::emulator::kernel_list();
  while (entry && strcmp(entry->name, name)) entry = entry->next;
  return entry;
}

/// The parameter types of a kernel, "const f32*,i32", or null if there is no such kernel.
EXPORT const char* emulator_parameter_types(const char* name) {
  const KernelEntry* entry = find(name);
  return entry ? entry->types.c_str() : nullptr;
}

/// Run a kernel. Returns null, or the message of what went wrong.
EXPORT const char* emulator_launch(const char* name, const unsigned* grid, const unsigned* block,
                                   size_t shared_bytes, const char* order, void* const* parameters) {
  struct Call {
    const KernelEntry* entry;
    void* const* parameters;
  } call{find(name), parameters};
  if (!call.entry) return "no such kernel";
  const auto body = [](void* context) {
    const Call& c = *static_cast<Call*>(context);
    c.entry->call(c.parameters);
  };
  return flashperf::emulator::launch({name, dim3(grid[0], grid[1], grid[2]),
                                      dim3(block[0], block[1], block[2]), shared_bytes,
                                      call.entry->max_threads, order, body, &call});
}
