// flashperf._native: loads the kernel library of one instruction-set level and binds its kernels to buffers.
// Validation of shapes, types and overlap is in flashperf/native.py; nothing here looks at an array twice.
#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../cpu/kernel.h"
#include "calls.h"
#include "signature.h"

namespace py = pybind11;
using flashperf::Background;
using flashperf::Call;
using flashperf::KernelEntry;
using flashperf::Sequence;
using flashperf::Signature;
using flashperf::Slot;

namespace {

// A kernel with its compiled signature.
class Kernel {
 public:
  Kernel(const KernelEntry* entry, Signature signature) : entry_(entry), signature_(std::move(signature)) {}

  // The bound call; none if anything does not fit.
  std::shared_ptr<Call> bind(const py::tuple& arrays, const py::dict& scalars) const {
    auto call = std::make_shared<Call>();
    if (!signature_.fill(arrays, scalars, call->slots)) return nullptr;
    call->name = entry_->name;
    call->run = entry_->run;
    call->keep_alive = arrays;
    return call;
  }

 private:
  const KernelEntry* entry_;
  Signature signature_;
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

  Kernel compile(const std::string& name, Signature signature) const {
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) throw std::invalid_argument("no kernel " + name);
    return {found->second, std::move(signature)};
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
  py::class_<Signature>(m, "Signature")
      .def(py::init<std::vector<std::string>, const std::vector<Signature::ArgumentSpec>&,
                    std::vector<std::pair<std::string, bool>>>());
  py::class_<Kernel>(m, "Kernel")
      .def("bind", &Kernel::bind, "A bound call, or None if anything doesn't fit.");
  py::class_<Library>(m, "Library")
      .def(py::init<const std::string&>())
      .def("kernels", &Library::kernels, "name -> (signature, types)")
      .def("compile", &Library::compile)
      .def("bind", &Library::bind);
}
