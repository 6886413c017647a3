#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "sanitizers.h"

#if !defined(FLASHPERF_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define FLASHPERF_UCONTEXT
#endif
#ifdef FLASHPERF_UCONTEXT
#include <ucontext.h>
#endif

namespace flashperf::emulator {

namespace {
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 64 << 10;  // a whole page on every system: running off the stack faults
}  // namespace

#ifdef FLASHPERF_UCONTEXT

struct Registers {
  ucontext_t saved;
};

static void switch_registers(Registers& from, Registers& to) { swapcontext(&from.saved, &to.saved); }

static void start_registers(Registers& registers, char* stack, void (*entry)()) {
  getcontext(&registers.saved);
  registers.saved.uc_stack.ss_sp = stack;
  registers.saved.uc_stack.ss_size = kStackBytes;
  registers.saved.uc_link = nullptr;
  makecontext(&registers.saved, entry, 0);
}

#else

struct Registers {
  void* stack_pointer = nullptr;  // the callee-saved registers lie on the stack, at this address
};

// Saves the callee-saved registers on the current stack, stores its pointer in *from, continues at `to`.
extern "C" void flashperf_switch_stack(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl flashperf_switch_stack
.hidden flashperf_switch_stack
.type flashperf_switch_stack, @function
flashperf_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size flashperf_switch_stack, .-flashperf_switch_stack
)");
constexpr int kSavedWords = 6;  // then the return address, then a null return address that ends backtraces
constexpr int kReturnWord = 6;
constexpr int kFrameWords = 8;
#else
asm(R"(
.text
.globl flashperf_switch_stack
.hidden flashperf_switch_stack
.type flashperf_switch_stack, %function
flashperf_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size flashperf_switch_stack, .-flashperf_switch_stack
)");
constexpr int kReturnWord = 11;  // x30
constexpr int kFrameWords = 20;
#endif

static void switch_registers(Registers& from, Registers& to) {
  flashperf_switch_stack(&from.stack_pointer, to.stack_pointer);
}

static void start_registers(Registers& registers, char* stack, void (*entry)()) {
  uintptr_t* frame = reinterpret_cast<uintptr_t*>(stack + kStackBytes) - kFrameWords;
  for (int i = 0; i < kFrameWords; ++i) frame[i] = 0;
  frame[kReturnWord] = reinterpret_cast<uintptr_t>(entry);
  registers.stack_pointer = frame;
}

#endif

struct Fiber::Context {
  Registers registers;
  char* stack = nullptr;  // lowest usable byte
  SanitizerFiber sanitizer;
};

namespace {
Fiber::Context* running = nullptr;
Registers scheduler_registers;
SanitizerFiber scheduler_sanitizer;
void (*first_call)() = nullptr;

void enter() {
  SanitizerFiber::arrived_new(scheduler_sanitizer);
  first_call();
  abort();  // the entry function suspends for good, it never returns
}
}  // namespace

Fiber::Fiber() : context_(new Context) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) abort();
  mprotect(memory, kGuardBytes, PROT_NONE);
  context_->stack = static_cast<char*>(memory) + kGuardBytes;
  context_->sanitizer.create(context_->stack, kStackBytes);
}

Fiber::~Fiber() {
  context_->sanitizer.destroy();
  munmap(context_->stack - kGuardBytes, kGuardBytes + kStackBytes);
  delete context_;
}

void Fiber::start(void (*entry)()) {
  first_call = entry;  // the same for all fibers of a launch
  context_->sanitizer.forget_stack();
  start_registers(context_->registers, context_->stack, enter);
}

void Fiber::resume() {
  running = context_;
  scheduler_sanitizer.leave_for(context_->sanitizer);
  switch_registers(scheduler_registers, context_->registers);
  scheduler_sanitizer.arrived();
}

void Fiber::suspend(bool last) {
  Context* self = running;
  self->sanitizer.leave_for(scheduler_sanitizer, last);
  switch_registers(self->registers, scheduler_registers);
  self->sanitizer.arrived_from(scheduler_sanitizer);
}

}  // namespace flashperf::emulator
