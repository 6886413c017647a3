// hold: keeps a stream busy until the host lets it go, so that everything behind it is enqueued before any of
// it runs, and the time from event to event has no launch latency in it.
//
// One thread reads a flag in pinned host memory. A host that waits for the device before it sets the flag
// would wait for ever, as would one whose launches fill the queue: after `limit_ns` the kernel gives up and
// says so.
#include "common.cuh"

extern "C" __global__ void hold(const volatile int* released, int* gave_up, long long limit_ns) {
  const long long start = global_time_ns();
  while (*released == 0) {
    if (global_time_ns() - start < limit_ns) continue;
    *gave_up = 1;
    __threadfence_system();  // the host reads it when the stream is done
    return;
  }
}
