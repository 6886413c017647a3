// A fiber: the stack of one CUDA thread, and the switch between it and the scheduler.
//
// One fiber runs at a time, on the operating system thread that called the launch. The switch is a few lines
// of assembly on x86-64 and aarch64; elsewhere, or with FLASHPERF_UCONTEXT, it is ucontext.
#pragma once

#include <cstddef>

namespace flashperf::emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next resume() calls `entry` on an empty stack; whatever the fiber was doing is forgotten.
  void start(void (*entry)());
  /// From the scheduler: run the fiber until it suspends.
  void resume();
  /// From the running fiber: back to the scheduler. With `last` the fiber will not be resumed.
  static void suspend(bool last = false);

  struct Context;

 private:
  Context* context_;
};

}  // namespace flashperf::emulator
