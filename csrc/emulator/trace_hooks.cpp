// The functions that GCC calls at every access of code compiled with -fsanitize=thread. Their return address
// is the place of the access: it names the instruction.
#ifdef FLASHPERF_TRACE

#include <cstdint>

#include "trace.h"

using flashperf::emulator::AccessKind;
using flashperf::emulator::note_access;

#define HOOK extern "C" void
#define CALLER __builtin_return_address(0)

#define ACCESS_HOOKS(bytes)                                                                            \
  HOOK __tsan_read##bytes(void* at) { note_access(at, bytes, AccessKind::kRead, CALLER); }             \
  HOOK __tsan_write##bytes(void* at) { note_access(at, bytes, AccessKind::kWrite, CALLER); }           \
  HOOK __tsan_unaligned_read##bytes(void* at) { note_access(at, bytes, AccessKind::kRead, CALLER); }   \
  HOOK __tsan_unaligned_write##bytes(void* at) { note_access(at, bytes, AccessKind::kWrite, CALLER); } \
  HOOK __tsan_volatile_read##bytes(void* at) { note_access(at, bytes, AccessKind::kRead, CALLER); }    \
  HOOK __tsan_volatile_write##bytes(void* at) { note_access(at, bytes, AccessKind::kWrite, CALLER); }

ACCESS_HOOKS(1)
ACCESS_HOOKS(2)
ACCESS_HOOKS(4)
ACCESS_HOOKS(8)
ACCESS_HOOKS(16)

HOOK __tsan_read_range(void* at, unsigned long bytes) { note_access(at, bytes, AccessKind::kRead, CALLER); }
HOOK __tsan_write_range(void* at, unsigned long bytes) { note_access(at, bytes, AccessKind::kWrite, CALLER); }
HOOK __tsan_vptr_update(void**, void*) {}
HOOK __tsan_vptr_read(void**) {}
HOOK __tsan_func_entry(void*) {}
HOOK __tsan_func_exit() {}
HOOK __tsan_init() {}

// csrc/emulator/atomics.h reads, then compares and exchanges: the exchange is the access. Threads of a block
// take turns on one processor, so plain memory does.
#define ATOMIC_HOOKS(bits, Word)                                                                   \
  extern "C" Word __tsan_atomic##bits##_load(const volatile Word* at, int) { return *at; }         \
  extern "C" bool __tsan_atomic##bits##_compare_exchange_strong(volatile Word* at, Word* expected, \
                                                                Word wanted, int, int) {           \
    note_access(const_cast<const Word*>(at), bits / 8, AccessKind::kAtomic, CALLER);               \
    const bool same = *at == *expected;                                                            \
    if (same) *at = wanted;                                                                        \
    else *expected = *at;                                                                          \
    return same;                                                                                   \
  }

ATOMIC_HOOKS(8, uint8_t)
ATOMIC_HOOKS(16, uint16_t)
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)

#endif  // FLASHPERF_TRACE
