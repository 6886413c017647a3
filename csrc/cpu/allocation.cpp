// allocation: memory that is asked for anew on every call.
//
// What an allocator gets from the system has no pages behind it: each is found, zeroed and mapped when it is
// first touched, and given up when the memory is returned. `fresh_pages` returns a buffer and asks for it
// again in one system call, at the same address, so that calls which were bound to it still are.
#include "rowwise.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace flashperf {
namespace {

constexpr uintptr_t kPage = 4096;

// Only whole pages inside the buffer; what shares a page with something else keeps it.
void fresh_pages(uint8_t* buffer, int64_t n) {
#if defined(__linux__)
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(buffer) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(buffer) + static_cast<uintptr_t>(n)) / kPage * kPage;
  if (begin < end)
    mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
#else
  std::memset(buffer, 0, static_cast<size_t>(n));
#endif
}

FP_KERNEL(fresh_pages, "~buffer[n] -> ; n")

}  // namespace
}  // namespace flashperf
