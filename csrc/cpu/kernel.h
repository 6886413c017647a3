// How a CPU kernel is published: one line, FP_KERNEL(function, signature), and Python can prepare it.
//
// Each file in this folder is compiled once for every instruction-set level (setup.py), into one shared
// library per level, so `#if defined(__AVX512F__)` and the like choose the code. A kernel is a plain
// function: pointers first, in the order of the signature, then dimensions (int64_t) and scalars (float) in
// the order given after the semicolon.
//
//   void rmsnorm(const float* x, const float* weight, float* y, int64_t rows, int64_t cols, float eps);
//   FP_KERNEL(rmsnorm, "x[rows,cols] weight[cols] -> y[rows,cols]; rows cols eps")
//
// Dimensions are inferred from the arrays. `n/32` means n divided by 32, rounded up; `3*d`, `b+1` and numbers
// work too. `~x[...]` left of the arrow is read and updated in place. Element types come from the C++ types.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace flashperf {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

union Slot {
  void* pointer;
  int64_t integer;
  double real;
};

struct KernelEntry {
  const char* name;
  const char* signature;
  const char* types;  // "const f32*,f32*,i64,f32": what each slot holds
  void (*run)(const Slot*);
  KernelEntry* next;
};

KernelEntry*& kernel_list();  // defined in table.cpp: one list per shared library

template <class T>
constexpr const char* element_name() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>) return "f32";
  else if constexpr (std::is_same_v<U, double>) return "f64";
  else if constexpr (std::is_same_v<U, bf16>) return "bf16";
  else if constexpr (std::is_same_v<U, f16>) return "f16";
  else if constexpr (std::is_same_v<U, int8_t>) return "i8";
  else if constexpr (std::is_same_v<U, uint8_t>) return "u8";
  else if constexpr (std::is_same_v<U, int32_t>) return "i32";
  else {
    static_assert(std::is_same_v<U, int64_t>, "kernel arguments are f32, f64, bf16, f16, i8, u8, i32 or i64");
    return "i64";
  }
}

template <class A>
A from_slot(const Slot& slot) {
  if constexpr (std::is_pointer_v<A>) return static_cast<A>(slot.pointer);
  else if constexpr (std::is_floating_point_v<A>) return static_cast<A>(slot.real);
  else return static_cast<A>(slot.integer);
}

template <class A>
std::string type_name() {
  if constexpr (std::is_pointer_v<A>) {
    using P = std::remove_pointer_t<A>;
    return std::string(std::is_const_v<P> ? "const " : "") + element_name<P>() + "*";
  } else {
    return element_name<A>();
  }
}

template <auto Function>
struct Thunk;

template <class... A, void (*Function)(A...)>
struct Thunk<Function> {
  static void run(const Slot* slots) { call(slots, std::index_sequence_for<A...>{}); }
  static std::string types() {
    std::string text;
    ((text += (text.empty() ? "" : ",") + type_name<A>()), ...);
    return text;
  }

 private:
  template <size_t... I>
  static void call(const Slot* slots, std::index_sequence<I...>) {
    Function(from_slot<A>(slots[I])...);
  }
};

template <auto Function>
struct Registrar {
  std::string types = Thunk<Function>::types();
  KernelEntry entry;
  Registrar(const char* name, const char* signature)
      : entry{name, signature, types.c_str(), &Thunk<Function>::run, kernel_list()} {
    kernel_list() = &entry;
  }
};

}  // namespace flashperf

// FP_KERNEL_AS names a template instance: FP_KERNEL_AS("copy_bf16", copy<bf16>, "x[n] -> y[n]; n")
#define FP_CONCAT_(a, b) a##b
#define FP_CONCAT(a, b) FP_CONCAT_(a, b)
#define FP_KERNEL_AS(name, function, signature) \
  static ::flashperf::Registrar<&function> FP_CONCAT(registrar_, __COUNTER__)(name, signature);
#define FP_KERNEL(function, signature) FP_KERNEL_AS(#function, function, signature)
