// What AddressSanitizer and ThreadSanitizer must be told: which stack runs, and what orders what.
//
// The runtime itself is never compiled with -fsanitize=thread: only the kernel's own accesses are looked at.
// FLASHPERF_ASAN and FLASHPERF_TSAN are set by the build.
#pragma once

#include <cstddef>

#ifdef FLASHPERF_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef FLASHPERF_TSAN
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
}
#endif

namespace flashperf::emulator {

#ifdef FLASHPERF_TSAN
inline void acquire(void* object) { __tsan_acquire(object); }
inline void release(void* object) { __tsan_release(object); }
inline void note_read(const void* address, size_t bytes) {
  __tsan_read_range(const_cast<void*>(address), bytes);
}
inline void note_write(void* address, size_t bytes) { __tsan_write_range(address, bytes); }
#else
inline void acquire(void*) {}
inline void release(void*) {}
inline void note_read(const void*, size_t) {}
inline void note_write(void*, size_t) {}
#endif

/// One stack as the sanitizers know it. Every switch is announced before (leave_for) and after (arrived).
struct SanitizerFiber {
  const void* stack = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;
  void* thread = nullptr;

  void create(void* stack_bottom, size_t stack_bytes) {
    stack = stack_bottom, bytes = stack_bytes;
#ifdef FLASHPERF_TSAN
    thread = __tsan_create_fiber(0);
#endif
  }

  void destroy() {
#ifdef FLASHPERF_TSAN
    __tsan_destroy_fiber(thread);
#endif
  }

  /// The stack is used afresh: red zones of abandoned frames go.
  void forget_stack() {
#ifdef FLASHPERF_ASAN
    __asan_unpoison_memory_region(const_cast<void*>(stack), bytes);
#endif
  }

  void leave_for(SanitizerFiber& next, bool last = false) {
#ifdef FLASHPERF_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack, next.stack, next.bytes);
#endif
#ifdef FLASHPERF_TSAN
    if (!thread) thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(next.thread, 1);  // 1: the switch itself orders nothing
#endif
    (void)next, (void)last;
  }

  void arrived() {
#ifdef FLASHPERF_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  /// As arrived(), in a fiber: `previous` (the scheduler) learns the bounds of its own stack.
  void arrived_from(SanitizerFiber& previous) {
#ifdef FLASHPERF_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &previous.stack, &previous.bytes);
#endif
    (void)previous;
  }

  static void arrived_new(SanitizerFiber& previous) {
#ifdef FLASHPERF_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &previous.stack, &previous.bytes);
#endif
    (void)previous;
  }
};

}  // namespace flashperf::emulator
