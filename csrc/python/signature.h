// A kernel's signature compiled for binding: what must be true of its arrays, and where its scalars come
// from.
//
// flashperf/native.py parses signatures and explains what does not fit. This is the quick way for arguments
// that do: about what a framework's dispatcher does for every call of an operator.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../cpu/kernel.h"

namespace flashperf {

namespace py = pybind11;

// A dimension: a name or a number, or two of them with an operator. Names are indices into the signature's.
struct Term {
  bool is_name;
  int64_t value;
  int64_t of(const std::vector<int64_t>& sizes) const { return is_name ? sizes[value] : value; }
};
struct Dimension {
  Term left, right;
  char op;  // '+', '*', '/' (rounded up); a name alone is "name + 0"
  bool is_plain() const { return left.is_name && op == '+' && !right.is_name && right.value == 0; }
  int64_t of(const std::vector<int64_t>& sizes) const {
    const int64_t a = left.of(sizes), b = right.of(sizes);
    return op == '*' ? a * b : op == '/' ? (a + b - 1) / b : a + b;
  }
};

struct Argument {
  int type;  // NumPy's type number
  bool written;
  std::vector<Dimension> dims;
};

class Signature {
 public:
  using DimensionSpec = std::tuple<bool, int64_t, std::string, bool, int64_t>;
  using ArgumentSpec = std::tuple<int, bool, std::vector<DimensionSpec>>;

  // names: of dimensions; scalars: (name, whether it is an integer) in the order of the slots
  Signature(std::vector<std::string> names, const std::vector<ArgumentSpec>& arguments,
            std::vector<std::pair<std::string, bool>> scalars)
      : names_(std::move(names)), scalars_(std::move(scalars)) {
    for (const auto& [type, written, dims] : arguments) {
      Argument argument{type, written, {}};
      for (const auto& [left_named, left, op, right_named, right] : dims)
        argument.dims.push_back({{left_named, left}, {right_named, right}, op[0]});
      arguments_.push_back(std::move(argument));
    }
  }

  // Fills the slots. False, without a reason, for anything that does not fit or is not of the usual types.
  bool fill(const py::tuple& arrays, const py::dict& given, std::vector<Slot>& slots) const {
    std::vector<int64_t> sizes(names_.size(), -1);
    if (arrays.size() != arguments_.size() || !take_given(given, sizes)) return false;
    slots.resize(arguments_.size() + scalars_.size());
    std::vector<std::pair<uintptr_t, uintptr_t>> spans(arguments_.size());
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const py::handle item = arrays[i];
      if (!py::isinstance<py::array>(item)) return false;
      const auto array = py::reinterpret_borrow<py::array>(item);
      if (!fits(arguments_[i], array, sizes)) return false;
      const auto begin = reinterpret_cast<uintptr_t>(array.data());
      if (begin % static_cast<uintptr_t>(array.itemsize())) return false;
      spans[i] = {begin, begin + static_cast<uintptr_t>(array.nbytes())};
      slots[i].pointer = reinterpret_cast<void*>(begin);
    }
    return derived_fit(arrays, sizes) && apart(spans) && fill_scalars(given, sizes, slots);
  }

 private:
  static bool integer(PyObject* value, int64_t& out) {
    if (!PyLong_CheckExact(value)) return false;
    int overflow = 0;
    out = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
  }

  int64_t index_of(const std::string& name) const {
    for (size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) return static_cast<int64_t>(i);
    return -1;
  }

  // Every given name must be a scalar of the kernel; dimensions that no array has by itself come so.
  bool take_given(const py::dict& given, std::vector<int64_t>& sizes) const {
    for (const auto& [key, value] : given) {
      const auto name = key.cast<std::string>();
      bool known = false;
      for (const auto& scalar : scalars_) known |= scalar.first == name;
      if (!known) return false;
      const int64_t index = index_of(name);
      if (index < 0) continue;
      if (!integer(value.ptr(), sizes[index]) || sizes[index] < 1) return false;
    }
    return true;
  }

  static bool fits(const Argument& argument, const py::array& array, std::vector<int64_t>& sizes) {
    const py::dtype type = array.dtype();
    if (type.num() != argument.type || (type.byteorder() != '=' && type.byteorder() != '|')) return false;
    if (!(array.flags() & py::array::c_style) || (argument.written && !array.writeable())) return false;
    if (array.ndim() != static_cast<py::ssize_t>(argument.dims.size())) return false;
    for (size_t axis = 0; axis < argument.dims.size(); ++axis) {
      const int64_t size = array.shape(static_cast<py::ssize_t>(axis));
      if (size == 0) return false;
      if (!argument.dims[axis].is_plain()) continue;
      int64_t& known = sizes[argument.dims[axis].left.value];
      if (known < 0) known = size;
      if (known != size) return false;
    }
    return true;
  }

  bool derived_fit(const py::tuple& arrays, const std::vector<int64_t>& sizes) const {
    for (const int64_t size : sizes)
      if (size < 0) return false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto array = py::reinterpret_borrow<py::array>(arrays[i]);
      for (size_t axis = 0; axis < arguments_[i].dims.size(); ++axis)
        if (array.shape(static_cast<py::ssize_t>(axis)) != arguments_[i].dims[axis].of(sizes)) return false;
    }
    return true;
  }

  bool apart(const std::vector<std::pair<uintptr_t, uintptr_t>>& spans) const {
    for (size_t i = 0; i < spans.size(); ++i)
      for (size_t j = 0; arguments_[i].written && j < spans.size(); ++j)
        if (i != j && spans[i].first < spans[j].second && spans[j].first < spans[i].second) return false;
    return true;
  }

  bool fill_scalars(const py::dict& given, const std::vector<int64_t>& sizes,
                    std::vector<Slot>& slots) const {
    for (size_t i = 0; i < scalars_.size(); ++i) {
      const auto& [name, is_integer] = scalars_[i];
      Slot& slot = slots[arguments_.size() + i];
      const int64_t index = index_of(name);
      if (index >= 0) {
        slot.integer = sizes[index];
        continue;
      }
      PyObject* value = PyDict_GetItemString(given.ptr(), name.c_str());
      if (!value) return false;
      if (is_integer) {
        if (!integer(value, slot.integer)) return false;
      } else {
        if (!PyFloat_CheckExact(value)) return false;
        slot.real = PyFloat_AS_DOUBLE(value);
        const bool finite = std::isfinite(slot.real);
        if (finite && std::abs(slot.real) > std::numeric_limits<float>::max()) return false;
      }
    }
    return true;
  }

  std::vector<std::string> names_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<std::string, bool>> scalars_;
};

}  // namespace flashperf
