// Threads that wait for work: started by the first call that needs as many, kept until the process ends.
//
// Starting a thread costs as much as a small kernel does, so a call must not. The caller hands out the work
// and waits; the threads may be bound to a core each. A process that was forked has none of its parent's
// threads and starts its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#include <unistd.h>

namespace flashperf {

class Pool {
 public:
  /// The pool of this process with so many threads, bound or not; made when first asked for, never destroyed.
  static Pool& of(int threads, bool pinned) {
    static std::mutex guard;
    static auto& pools = *new std::map<std::tuple<pid_t, int, bool>, Pool*>;
    const std::lock_guard<std::mutex> lock(guard);
    Pool*& pool = pools[{getpid(), threads, pinned}];
    if (!pool) pool = new Pool(threads, pinned);
    return *pool;
  }

  /// work(i) on thread i, for each of them; returns when all have ended.
  void run(const std::function<void(int)>& work) {
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = &work;
    unfinished_ = static_cast<int>(threads_.size());
    ++round_;
    start_.notify_all();
    end_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  Pool(int threads, bool pinned) {
    const std::vector<int> cores = pinned ? allowed_cores() : std::vector<int>();
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { serve(i); });
      if (!cores.empty()) bind(threads_.back(), cores[i % cores.size()]);
    }
  }

  void serve(int index) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (int64_t seen = 0;;) {
      start_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      lock.unlock();
      (*work_)(index);
      lock.lock();
      if (--unfinished_ == 0) end_.notify_one();
    }
  }

#if defined(__linux__)
  static std::vector<int> allowed_cores() {
    std::vector<int> cores;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
  }
  static void bind(std::thread& thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  }
#else
  static std::vector<int> allowed_cores() { return {}; }
  static void bind(std::thread&, int) {}
#endif

  std::mutex mutex_;
  std::condition_variable start_, end_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  int64_t round_ = 0;
  int unfinished_ = 0;
};

}  // namespace flashperf
