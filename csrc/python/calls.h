// Bound calls, sequences of them, and a thread that runs sequences beside the caller.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <time.h>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../cpu/kernel.h"

namespace flashperf {

namespace py = pybind11;

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// A kernel with its arguments in place. Calling it validates nothing and allocates nothing.
struct Call {
  std::string name;
  void (*run)(const Slot*);
  std::vector<Slot> slots;
  py::object keep_alive;
  int64_t count = 0;

  void operator()() {
    ++count;
    run(slots.data());
  }
};

// Calls replayed in order by one native call: what a prepared plan (and, on a GPU, a graph) does.
struct Sequence {
  std::vector<std::shared_ptr<Call>> calls;

  void operator()() const {
    for (const auto& call : calls) (*call)();
  }

  py::array_t<int64_t> timed() const {
    py::array_t<int64_t> durations_ns(static_cast<py::ssize_t>(calls.size()));
    auto out = durations_ns.mutable_unchecked<1>();
    int64_t before = now_ns();
    for (size_t i = 0; i < calls.size(); ++i) {
      (*calls[i])();
      const int64_t after = now_ns();
      out(static_cast<py::ssize_t>(i)) = after - before;
      before = after;
    }
    return durations_ns;
  }
};

// Runs sequences on a thread of its own, one after the other, while the caller goes on: what a copy engine
// with a stream is on a GPU. Between two of them the thread sleeps. It is kept off the caller's core, where
// there are others: Linux likes to wake a thread where its waker runs, and there it would wait until the
// caller does.
class Background {
 public:
  Background() : thread_([this] { serve(); }) {
#if defined(__linux__)
    CPU_ZERO(&allowed_);
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
#endif
  }
  Background(const Background&) = delete;
  ~Background() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Hands over a sequence; one at a time, the one before is waited for. With the interpreter's lock, and the
  // thread never touches a Python object: what it runs is kept here until the next.
  void submit(py::object sequence) {
    {
      const py::gil_scoped_release released;
      wait();
    }
    held_ = std::move(sequence);
    leave_callers_core();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      pending_ = held_.cast<const Sequence*>();
      busy_ = true;
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }

  // When the last sequence began and ended, by the monotonic clock; after wait().
  std::pair<int64_t, int64_t> span_ns() const { return {began_ns_, ended_ns_}; }

 private:
  // Binds the thread to the allowed cores but the caller's: a system call when the caller has moved, no other
  // time.
  void leave_callers_core() {
#if defined(__linux__)
    const int core = sched_getcpu();
    if (core < 0 || core == left_ || CPU_COUNT(&allowed_) < 2) return;
    cpu_set_t others = allowed_;
    CPU_CLR(core, &others);
    if (pthread_setaffinity_np(thread_.native_handle(), sizeof others, &others) == 0) left_ = core;
#endif
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || busy_; });
      if (stop_) return;
      const Sequence* mine = pending_;
      lock.unlock();
      const int64_t began = now_ns();
      (*mine)();
      const int64_t ended = now_ns();
      lock.lock();
      began_ns_ = began;
      ended_ns_ = ended;
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  py::object held_;
  const Sequence* pending_ = nullptr;
  bool busy_ = false, stop_ = false;
  int64_t began_ns_ = 0, ended_ns_ = 0;
#if defined(__linux__)
  cpu_set_t allowed_;
  int left_ = -1;  // the core that the thread keeps off
#endif
  std::thread thread_;  // last: it starts when the rest is there
};

}  // namespace flashperf
