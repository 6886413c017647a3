// Atomics. Relaxed hardware atomics underneath, so that ThreadSanitizer knows them as such.
#pragma once

#include <type_traits>

namespace flashperf::emulator {

template <class T>
using Same = std::common_type_t<T>;  // keeps the value from taking part in deduction

template <class T, class Function>
T read_modify_write(T* address, Function next) {
  T old, updated;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do updated = next(old);
  while (!__atomic_compare_exchange(address, &old, &updated, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace flashperf::emulator

#define FLASHPERF_ATOMIC(name, expression)                                                            \
  template <class T>                                                                                  \
  T name(T* address, flashperf::emulator::Same<T> value) {                                            \
    return flashperf::emulator::read_modify_write(address, [value](T old) { return T(expression); }); \
  }
FLASHPERF_ATOMIC(atomicAdd, old + value)
FLASHPERF_ATOMIC(atomicSub, old - value)
FLASHPERF_ATOMIC(atomicMax, old > value ? old : value)
FLASHPERF_ATOMIC(atomicMin, old < value ? old : value)
FLASHPERF_ATOMIC(atomicAnd, old& value)
FLASHPERF_ATOMIC(atomicOr, old | value)
FLASHPERF_ATOMIC(atomicXor, old ^ value)
FLASHPERF_ATOMIC(atomicExch, (static_cast<void>(old), value))
FLASHPERF_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
FLASHPERF_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef FLASHPERF_ATOMIC

template <class T>
T atomicCAS(T* address, flashperf::emulator::Same<T> compare, flashperf::emulator::Same<T> value) {
  T old = compare;
  __atomic_compare_exchange(address, &old, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return old;
}
