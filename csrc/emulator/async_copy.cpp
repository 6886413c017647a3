#include "async_copy.h"

#include <cstring>

#include "sanitizers.h"
#include "thread.h"
#include "trace.h"

namespace flashperf::emulator {

void async_copy(void* target, const void* source, size_t bytes, size_t read_bytes, Site where) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || read_bytes > bytes)
    fail("cp.async" + text(where) + " of " + std::to_string(read_bytes) + " of " + std::to_string(bytes) +
         " bytes: it copies 4, 8 or 16");
  if (reinterpret_cast<uintptr_t>(target) % bytes || reinterpret_cast<uintptr_t>(source) % bytes)
    fail("misaligned: cp.async" + text(where) + " of " + std::to_string(bytes) + " bytes");
  note_write(target, bytes);
  const void* code = __builtin_return_address(0);
  // 16 bytes go past L1 (cp.async.cg), fewer through it. The code of the write is told from that of the read.
  note_access(source, read_bytes, bytes == 16 ? AccessKind::kCopyPastL1 : AccessKind::kCopy, code);
  note_access(target, bytes, AccessKind::kWrite, static_cast<const char*>(code) + 1);
  memset(target, 0xFF, bytes);
  current_thread()->open_copies.push_back({target, source, bytes, read_bytes});
}

void async_commit() {
  Thread& me = *current_thread();
  me.committed_copies.push_back(std::move(me.open_copies));
  me.open_copies.clear();
}

void async_wait(int pending) {
  auto& groups = current_thread()->committed_copies;
  for (; static_cast<int>(groups.size()) > pending; groups.pop_front()) {
    for (const AsyncCopy& copy : groups.front()) {
      note_read(copy.source, copy.read_bytes);
      note_write(copy.target, copy.bytes);
      memcpy(copy.target, copy.source, copy.read_bytes);
      memset(static_cast<char*>(copy.target) + copy.read_bytes, 0, copy.bytes - copy.read_bytes);
    }
  }
}

void async_wait_all() {
  async_commit();
  async_wait(0);
}

}  // namespace flashperf::emulator
