// flashperf._native: loads the kernel library of one instruction-set level and binds its kernels to buffers.
// Validation of shapes, types and overlap is in flashperf/native.py; nothing here looks at an array twice.
#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <time.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../cpu/kernel.h"

namespace py = pybind11;
using flashperf::KernelEntry;
using flashperf::Slot;

namespace {

int64_t now_ns() {
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
// with a stream is on a GPU. Between two of them the thread sleeps.
class Background {
 public:
  Background() : thread_([this] { serve(); }) {}
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
  std::thread thread_;  // last: it starts when the rest is there
};

class Library {
 public:
  explicit Library(const std::string& path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw std::runtime_error(std::string("cannot load kernel library: ") + dlerror());
    using Door = const KernelEntry* (*)();
    const Door door = reinterpret_cast<Door>(dlsym(handle_, "flashperf_kernels"));
    if (!door) throw std::runtime_error(path + " is not a kernel library");
    for (const KernelEntry* entry = door(); entry; entry = entry->next) {
      if (!kernels_.emplace(entry->name, entry).second)
        throw std::runtime_error(std::string("two kernels are called ") + entry->name);
    }
  }

  std::map<std::string, std::pair<std::string, std::string>> kernels() const {
    std::map<std::string, std::pair<std::string, std::string>> found;
    for (const auto& [name, entry] : kernels_) found[name] = {entry->signature, entry->types};
    return found;
  }

  // pointers, then integers, then reals, as `types` orders them; checked by the caller.
  std::shared_ptr<Call> bind(const std::string& name, const std::vector<uintptr_t>& pointers,
                             const py::list& scalars, py::object keep_alive) const {
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) throw std::invalid_argument("no kernel " + name);
    auto call = std::make_shared<Call>();
    call->name = name;
    call->run = found->second->run;
    call->keep_alive = std::move(keep_alive);
    for (const uintptr_t address : pointers) {
      Slot slot;
      slot.pointer = reinterpret_cast<void*>(address);
      call->slots.push_back(slot);
    }
    for (const py::handle& scalar : scalars) {
      Slot slot;
      if (py::isinstance<py::float_>(scalar)) slot.real = scalar.cast<double>();
      else slot.integer = scalar.cast<int64_t>();
      call->slots.push_back(slot);
    }
    return call;
  }

 private:
  void* handle_ = nullptr;  // never closed: bound calls outlive the library object
  std::map<std::string, const KernelEntry*> kernels_;
};

// Where the elements of NumPy arrays lie; asking each array from Python takes a microsecond.
std::vector<uintptr_t> addresses(const std::vector<py::array>& arrays) {
  std::vector<uintptr_t> found;
  found.reserve(arrays.size());
  for (const py::array& array : arrays) found.push_back(reinterpret_cast<uintptr_t>(array.data()));
  return found;
}

// Linux gives a process the AMX tile registers only after it has asked for them.
bool request_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
#else
  return false;
#endif
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "Kernel libraries, bound calls and sequences of them.";
  m.def("request_amx", &request_amx,
        "Ask the kernel for the AMX tile registers; False where there are none.");
  m.def("addresses", &addresses, "Addresses of the elements of NumPy arrays.");
  py::class_<Call, std::shared_ptr<Call>>(m, "Call")
      .def("__call__", &Call::operator())
      .def_readonly("name", &Call::name)
      .def_readwrite("count", &Call::count, "How often this call has run.")
      .def("__repr__", [](const Call& call) { return "<Call " + call.name + ">"; });
  py::class_<Sequence>(m, "Sequence")
      .def(py::init([](std::vector<std::shared_ptr<Call>> calls) { return Sequence{std::move(calls)}; }))
      .def("__call__", &Sequence::operator(), py::call_guard<py::gil_scoped_release>())
      .def("__len__", [](const Sequence& sequence) { return sequence.calls.size(); })
      .def("timed", &Sequence::timed, "Run once; nanoseconds of each call, int64.");
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Background>(m, "Background")
      .def(py::init<>())
      .def("submit", &Background::submit, "Run a sequence beside the caller.")
      .def("wait", &Background::wait, Released(), "Return when it is done.")
      .def("span_ns", &Background::span_ns, "Begin and end of the last one by the monotonic clock.");
  py::class_<Library>(m, "Library")
      .def(py::init<const std::string&>())
      .def("kernels", &Library::kernels, "name -> (signature, types)")
      .def("bind", &Library::bind);
}
