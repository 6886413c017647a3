// What a GPU refuses to launch (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
#include <algorithm>

#include "scheduler.h"

namespace flashperf::emulator {

constexpr uint64_t kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = 227 << 10;  // dynamic shared memory of a block on sm_90 and sm_100
constexpr unsigned kMaxGridYZ = 65535;

std::string refusal(const LaunchRequest& r) {
  const std::string kernel = std::string(r.kernel) + ": ";
  const uint64_t threads = uint64_t{r.block.x} * r.block.y * r.block.z;
  const uint64_t most = std::min<uint64_t>(kMaxThreads, r.max_threads);
  if (threads < 1 || threads > most)
    return kernel + "a block of " + std::to_string(threads) + " threads, where at most " +
           std::to_string(most) + " fit";
  if (r.shared_bytes > kMaxSharedBytes)
    return kernel + std::to_string(r.shared_bytes) + " bytes of shared memory, where at most " +
           std::to_string(kMaxSharedBytes) + " fit";
  if (!r.grid.x || !r.grid.y || !r.grid.z || r.grid.y > kMaxGridYZ || r.grid.z > kMaxGridYZ)
    return kernel + "a grid of " + std::to_string(r.grid.x) + " x " + std::to_string(r.grid.y) + " x " +
           std::to_string(r.grid.z) + " blocks";
  return "";
}

}  // namespace flashperf::emulator
