#ifdef FLASHPERF_TRACE

#include "trace.h"

#include <dlfcn.h>

#include <algorithm>

#include "scheduler.h"
#include "thread.h"
#include "trace_requests.h"

namespace flashperf::emulator {

namespace {

constexpr size_t kMostSectors = size_t{1} << 26;  // 512 MB of them: a larger trace helps nobody

/// An array of the launch, or a shared one. For arrays of the launch, which bytes were read and written.
/// `base` is where the trace says that it starts: the host's own address has another alignment than a GPU's.
struct Range {
  uint64_t start, end, base;
  Space space;
  bool used = false;
  std::vector<bool> read, written;
};

struct ThreadTrace {
  std::vector<Access> accesses;
  uint32_t epoch = 0;
};

struct Recorder {
  bool on = false;
  std::vector<Range> arrays, shared;
  bool has_dynamic = false;  // the last of `shared` is the dynamic one
  std::vector<ThreadTrace> threads;
  Trace trace;
  uint32_t block = 0, epoch = 0;
  const void* whole = nullptr;  // the instruction whose accesses are one request
  bool continued = false;
};

Recorder recorder;

Range* range_of(uint64_t address) {
  for (std::vector<Range>* ranges : {&recorder.shared, &recorder.arrays})
    for (Range& range : *ranges)
      if (address >= range.start && address < range.end) return &range;
  return nullptr;
}

void mark(std::vector<bool>& bytes, uint64_t first, size_t count) {
  for (size_t i = first; i < std::min<size_t>(first + count, bytes.size()); ++i) bytes[i] = true;
}

/// Turn what the threads did since the last barrier into requests.
void flush() {
  Recorder& r = recorder;
  for (size_t first = 0; first < r.threads.size(); first += 32) {
    const std::vector<Access>* lanes[32] = {};
    for (size_t lane = 0; lane < 32 && first + lane < r.threads.size(); ++lane)
      lanes[lane] = &r.threads[first + lane].accesses;
    add_requests(r.trace, lanes, r.block, static_cast<uint32_t>(first / 32), r.epoch);
  }
  for (ThreadTrace& thread : r.threads) thread.accesses.clear(), thread.epoch = 0;
  ++r.epoch;
}

}  // namespace

void note_access(const void* address, size_t bytes, AccessKind kind, const void* code) {
  Recorder& r = recorder;
  const Thread* thread = r.on ? current_thread() : nullptr;
  if (!thread || !bytes) return;
  const uint64_t at = reinterpret_cast<uint64_t>(address);
  Range* range = range_of(at);
  if (!range) return;
  range->used = true;
  if (range->space == Space::kGlobal) {
    if (kind != AccessKind::kWrite) mark(range->read, at - range->start, bytes);
    if (kind == AccessKind::kWrite || kind == AccessKind::kAtomic)
      mark(range->written, at - range->start, bytes);
  }
  ThreadTrace& mine = r.threads[thread->id];
  mine.accesses.push_back({at - range->start + range->base, r.whole ? r.whole : code, mine.epoch,
                           static_cast<uint16_t>(bytes), kind, range->space, r.whole && r.continued});
  r.continued = true;
}

void note_converged() {
  if (recorder.on) ++recorder.threads[current_thread()->id].epoch;
}

void note_shared_array(void* address, size_t bytes) {
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  recorder.shared.insert(recorder.shared.begin(),
                         Range{start, start + bytes, 0, Space::kShared, false, {}, {}});
}

void note_launch(void* dynamic_shared, size_t bytes, size_t threads) {
  Recorder& r = recorder;
  r.trace = {};
  r.threads.assign(threads, {});
  r.block = r.epoch = 0;
  const uint64_t start = reinterpret_cast<uint64_t>(dynamic_shared);
  if (r.has_dynamic) r.shared.pop_back();
  r.shared.push_back({start, start + bytes, 0, Space::kShared, false, {}, {}});
  r.has_dynamic = true;
  for (Range& range : r.shared) range.used = false;
}

void note_barrier() {
  if (recorder.on) flush();
}

void note_block_end() {
  Recorder& r = recorder;
  if (!r.on) return;
  flush();
  ++r.block;
  r.epoch = 0;
  if (r.trace.sectors.size() > kMostSectors) fail("its trace is too large: take a smaller size");
}

void begin_request() {
  recorder.whole = __builtin_return_address(0);
  recorder.continued = false;
}

void end_request() { recorder.whole = nullptr; }

}  // namespace flashperf::emulator

// ---- what flashperf/traffic/trace.py calls
// -------------------------------------------------------------------

using flashperf::emulator::recorder;

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Trace the next launch: ranges[3 i] to ranges[3 i + 2] are start, end and traced start of array i.
EXPORT void emulator_trace_start(const uint64_t* ranges, int count) {
  recorder.on = true;
  recorder.arrays.clear();
  for (const uint64_t* r = ranges; r < ranges + 3 * count; r += 3) {
    const std::vector<bool> none(r[1] - r[0]);
    recorder.arrays.push_back({r[0], r[1], r[2], flashperf::emulator::Space::kGlobal, false, none, none});
  }
}

EXPORT void emulator_trace_stop() { recorder.on = false; }

/// The requests of the last launch: valid until the next.
EXPORT const void* emulator_trace_requests(uint64_t* count) {
  *count = recorder.trace.requests.size();
  return recorder.trace.requests.data();
}

EXPORT const uint64_t* emulator_trace_sectors(uint64_t* count) {
  *count = recorder.trace.sectors.size();
  return recorder.trace.sectors.data();
}

/// Where instruction `number` is in this library, for addr2line; 0 after the last.
EXPORT uint64_t emulator_trace_code(uint32_t number) {
  if (number >= recorder.trace.code.size()) return 0;
  const void* code = recorder.trace.code[number];
  Dl_info info;
  if (!dladdr(code, &info)) return 0;
  return reinterpret_cast<uint64_t>(code) - reinterpret_cast<uint64_t>(info.dli_fbase) - 1;
}

/// How many different bytes of array i were read, or written, since the trace was started.
EXPORT uint64_t emulator_trace_touched(int array, int written) {
  const auto& range = recorder.arrays[static_cast<size_t>(array)];
  const std::vector<bool>& bytes = written ? range.written : range.read;
  return static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), true));
}

/// Bytes of the static shared arrays that the last launch used.
EXPORT uint64_t emulator_trace_static_shared() {
  uint64_t bytes = 0;
  for (size_t i = 0; i + 1 < recorder.shared.size(); ++i)  // without the dynamic one
    if (recorder.shared[i].used) bytes += recorder.shared[i].end - recorder.shared[i].start;
  return bytes;
}

#endif  // FLASHPERF_TRACE
