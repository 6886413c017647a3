#include "scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>

#include "sanitizers.h"
#include "shared.h"
#include "thread.h"
#include "trace.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace flashperf::emulator {

namespace {

enum class Order { kForward, kReverse, kRandom };

struct Launch {
  const LaunchRequest* request = nullptr;
  std::vector<std::unique_ptr<Thread>> pool;  // fibers are kept from one launch to the next
  std::vector<Thread*> threads;               // those of the block, by id
  std::vector<int> turns;                     // ids in the order in which they run
  Order order = Order::kForward;
  std::mt19937 random;
  char* shared = nullptr;                               // dynamic shared memory
  std::vector<std::pair<void*, size_t>> static_shared;  // every static shared array met so far
  int at_barrier = 0, exited = 0, barrier_count = 0;
  unsigned generation = 0;  // of the barrier: even and odd ones are separate objects for ThreadSanitizer
  char barrier_object[2] = {}, block_start = 0, block_end = 0;
  std::map<std::pair<int, unsigned>, char> sync_objects[2];  // by warp and mask
  std::string failure;
};

Launch launch_state;
Thread* current = nullptr;
std::mutex one_launch;

void fill_with_nan(void* address, size_t bytes) { memset(address, 0xFF, bytes); }  // NaN in every float type

void set_failure(const std::string& what) {
  const Launch& l = launch_state;
  char block[64];
  snprintf(block, sizeof block, ", block (%u,%u,%u): ", blockIdx.x, blockIdx.y, blockIdx.z);
  launch_state.failure = l.request->kernel + std::string(block) + what;
}

void thread_main() {
  Launch& l = launch_state;
  acquire(&l.block_start);
  l.request->body(l.request->context);
  release(&l.block_end);
  current->state = State::kExited;
  ++l.exited;
  Fiber::suspend(true);
}

void complete_barrier() {
  Launch& l = launch_state;
  const Thread& first = *l.threads[0];
  l.barrier_count = 0;
  for (const Thread* thread : l.threads) {
    const bool same = thread->where.line == first.where.line && !strcmp(thread->where.file, first.where.file);
    if (!same || thread->operation != first.operation)
      return set_failure("divergent barrier" + describe(l.threads));
    l.barrier_count += thread->predicate;
  }
  for (Thread* thread : l.threads) thread->state = State::kReady;
  l.at_barrier = 0;
  ++l.generation;
  note_barrier();
}

std::vector<Thread*> warp_of(const Thread& thread) {
  const Launch& l = launch_state;
  const size_t first = thread.warp * 32, end = std::min(first + 32, l.threads.size());
  return {l.threads.begin() + first, l.threads.begin() + end};
}

/// Why a thread's warp operation can never end: a lane of its mask has exited. Empty if none has.
std::string dead_lane(const Thread& waiting) {
  for (const Thread* other : warp_of(waiting))
    if ((waiting.mask >> other->lane & 1) && other->state == State::kExited)
      return std::string("dead lane: the mask of ") + waiting.operation + text(waiting.where) +
             " names lane " + std::to_string(other->lane) + ", which has exited" + describe(warp_of(waiting));
  return "";
}

void report_deadlock() {
  const Launch& l = launch_state;
  for (const Thread* thread : l.threads) {
    const std::string dead = thread->state == State::kAtWarpOperation ? dead_lane(*thread) : "";
    if (!dead.empty()) return set_failure(dead);
  }
  set_failure((l.at_barrier ? "divergent barrier" : "deadlock in a warp operation") + describe(l.threads));
}

/// Run the block until every thread has exited or the launch has failed.
void run_block() {
  Launch& l = launch_state;
  const int n = static_cast<int>(l.threads.size());
  while (l.exited < n && l.failure.empty()) {
    if (l.order == Order::kRandom) std::shuffle(l.turns.begin(), l.turns.end(), l.random);
    bool progress = false;
    for (const int id : l.turns) {
      Thread* thread = l.threads[id];
      if (thread->state != State::kReady) continue;
      current = thread;
      threadIdx = thread->index;
      thread->fiber.resume();
      current = nullptr;
      progress = true;
      if (!l.failure.empty()) return;
    }
    if (l.at_barrier == n) complete_barrier();
    else if (!progress) report_deadlock();
  }
}

bool parse_order(const char* text) {
  Launch& l = launch_state;
  l.order = !strcmp(text, "reverse") ? Order::kReverse : Order::kForward;
  if (strncmp(text, "random:", 7) || !text[7]) return l.order == Order::kReverse || !strcmp(text, "forward");
  l.order = Order::kRandom;
  l.random.seed(static_cast<unsigned>(strtoul(text + 7, nullptr, 10)));
  return true;
}

void prepare_threads(int count) {
  Launch& l = launch_state;
  while (static_cast<int>(l.pool.size()) < count) l.pool.push_back(std::make_unique<Thread>());
  l.threads.clear();
  l.turns.clear();
  for (int i = 0; i < count; ++i) {
    l.threads.push_back(l.pool[i].get());
    l.turns.push_back(l.order == Order::kReverse ? count - 1 - i : i);
  }
}

void start_block(unsigned x, unsigned y, unsigned z) {
  Launch& l = launch_state;
  blockIdx = {x, y, z};
  l.at_barrier = l.exited = 0;
  fill_with_nan(l.shared, l.request->shared_bytes);
  for (const auto& [address, bytes] : l.static_shared) fill_with_nan(address, bytes);
  for (size_t i = 0; i < l.threads.size(); ++i) {
    l.threads[i]->reset(static_cast<int>(i), blockDim);
    l.threads[i]->fiber.start(thread_main);
  }
  release(&l.block_start);
}

}  // namespace

void Thread::reset(int new_id, const dim3& block) {
  const unsigned n = static_cast<unsigned>(new_id);
  id = new_id, lane = new_id % 32, warp = new_id / 32;
  index = {n % block.x, n / block.x % block.y, n / (block.x * block.y)};
  state = State::kReady;
  open_copies.clear(), committed_copies.clear(), syncs_by_mask.clear();
}

Thread* current_thread() { return current; }
int lane_index() { return current->lane; }

void register_shared(void* address, size_t bytes) {
  launch_state.static_shared.emplace_back(address, bytes);
  fill_with_nan(address, bytes);
  note_shared_array(address, bytes);
}

void* dynamic_shared() { return launch_state.shared; }

void fail(const std::string& what) {
  set_failure(what);
  for (;;) Fiber::suspend();
}

int barrier(const char* name, bool predicate, Site where) {
  Launch& l = launch_state;
  Thread& me = *current;
  me.operation = name, me.where = where, me.predicate = predicate, me.state = State::kAtBarrier;
  ++l.at_barrier;
  void* object = &l.barrier_object[l.generation % 2];
  release(object);
  Fiber::suspend();
  acquire(object);
  return l.barrier_count;
}

/// Whether all lanes of the mask wait for the same operation; ends the launch if that can never be.
static bool all_arrived(const Thread& me) {
  const std::string dead = dead_lane(me);
  if (!dead.empty()) fail(dead);
  bool all = true;
  for (const Thread* other : warp_of(me)) {
    if (!(me.mask >> other->lane & 1)) continue;
    const bool waits = other->state == State::kAtWarpOperation;
    const bool same = waits && other->mask == me.mask && !strcmp(other->operation, me.operation);
    if (waits && !same && (other->mask >> me.lane & 1))
      fail("lanes of a warp disagree on operation or mask" + describe(warp_of(me)));
    all = all && same;
  }
  return all;
}

void warp_exchange(const char* name, unsigned mask, void* payload, Combine combine, Site where,
                   bool orders_memory) {
  Launch& l = launch_state;
  Thread& me = *current;
  const int first = me.warp * 32;
  const int lanes = std::min(32, static_cast<int>(l.threads.size()) - first);
  const unsigned whole = lanes < 32 ? (1u << lanes) - 1 : ~0u;
  mask &= whole;  // the hardware ignores lanes that the block doesn't have
  me.operation = name, me.where = where, me.mask = mask, me.payload = payload, me.combine = combine;
  me.state = State::kAtWarpOperation;
  if (!(mask >> me.lane & 1)) fail("wrong mask: a caller is not in its own mask" + describe({&me}));

  void* object = nullptr;
  if (orders_memory) {
    object = &l.sync_objects[me.syncs_by_mask[mask]++ % 2][{me.warp, mask}];
    release(object);
  }
  if (mask == whole) note_converged();
  if (all_arrived(me)) {
    void* payloads[32] = {};
    for (int lane = 0; lane < lanes; ++lane)
      if (mask >> lane & 1) payloads[lane] = l.threads[first + lane]->payload;
    if (combine) combine(payloads, mask);
    for (int lane = 0; lane < lanes; ++lane)
      if (mask >> lane & 1) l.threads[first + lane]->state = State::kReady;
  } else {
    Fiber::suspend();
  }
  if (orders_memory) acquire(object);
}

const char* launch(const LaunchRequest& request) {
  const std::lock_guard<std::mutex> lock(one_launch);
  Launch& l = launch_state;
  l.request = &request;
  l.failure.clear();
  const uint64_t threads = uint64_t{request.block.x} * request.block.y * request.block.z;
  l.failure = refusal(request);
  if (l.failure.empty() && !parse_order(request.order))
    l.failure = std::string(request.kernel) + ": unknown thread order " + request.order;
  if (!l.failure.empty()) return l.failure.c_str();
  gridDim = request.grid, blockDim = request.block;
  prepare_threads(static_cast<int>(threads));
  l.sync_objects[0].clear(), l.sync_objects[1].clear();
  // Exactly as long as asked for, so that AddressSanitizer sees the end of it.
  free(l.shared);
  l.shared = nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, 1024, std::max<size_t>(1, request.shared_bytes))) abort();
  l.shared = static_cast<char*>(memory);
  note_launch(l.shared, request.shared_bytes, threads);
  for (unsigned z = 0; z < request.grid.z && l.failure.empty(); ++z)
    for (unsigned y = 0; y < request.grid.y && l.failure.empty(); ++y)
      for (unsigned x = 0; x < request.grid.x && l.failure.empty(); ++x) {
        start_block(x, y, z);
        run_block();
        note_block_end();
        acquire(&l.block_end);
      }
  return l.failure.empty() ? nullptr : l.failure.c_str();
}

}  // namespace flashperf::emulator
