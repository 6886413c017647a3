// How a kernel becomes callable from outside: one FLASHPERF_PUBLISH line per kernel, added by the build
// (qualifiers.h).
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "narrow.h"
#include "scheduler.h"

namespace flashperf::emulator {

struct KernelEntry {
  const char* name;
  std::string types;  // "const f32*,i32": one per parameter
  unsigned max_threads;
  void (*call)(void* const* parameters);  // parameters[i] points to the value of parameter i
  KernelEntry* next;
};

KernelEntry*& kernel_list();

template <class T>
std::string element_name() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return "f32";
  else if constexpr (std::is_same_v<U, double>) return "f64";
  else if constexpr (std::is_same_v<U, __half> || std::is_same_v<U, __half2>) return "f16";
  else if constexpr (std::is_same_v<U, __nv_bfloat16> || std::is_same_v<U, __nv_bfloat162>) return "bf16";
  else if constexpr (std::is_same_v<U, void>) return "any";
  else if constexpr (std::is_integral_v<U>)
    return (std::is_signed_v<U> ? "i" : "u") + std::to_string(8 * sizeof(U));
  else return element_name<decltype(U::x)>();  // a vector type is called after its elements
}

template <class T>
std::string parameter_name() {
  if constexpr (std::is_pointer_v<T>) {
    using P = std::remove_pointer_t<T>;
    return (std::is_const_v<P> ? "const " : "") + element_name<P>() + "*";
  } else {
    return element_name<T>();
  }
}

template <auto Kernel>
struct Published;

template <class... A, void (*Kernel)(A...)>
struct Published<Kernel> {
  KernelEntry entry;

  Published(const char* name, unsigned max_threads) : entry{name, types(), max_threads, call, kernel_list()} {
    kernel_list() = &entry;
  }
  static std::string types() {
    std::string all;
    ((all += (all.empty() ? "" : ",") + parameter_name<std::remove_cv_t<A>>()), ...);
    return all;
  }
  static void call(void* const* parameters) { call_with(parameters, std::index_sequence_for<A...>{}); }
  template <size_t... I>
  static void call_with(void* const* parameters, std::index_sequence<I...>) {
    Kernel(*static_cast<std::remove_cv_t<A>*>(parameters[I])...);
  }
};

/// The first argument of __launch_bounds__, or the most threads that any block may have.
constexpr unsigned launch_bounds(unsigned threads = 1024, ...) { return threads; }

}  // namespace flashperf::emulator
