// The qualifiers that flashperf/emulator_build.py reads from the preprocessed source, and only then makes
// disappear, and the macros that it puts in.
#pragma once

#define __global__
#define __launch_bounds__(...)

#define FLASHPERF_PUBLISH(kernel, ...)                                       \
  static flashperf::emulator::Published<&kernel> flashperf_publish_##kernel( \
      #kernel, flashperf::emulator::launch_bounds(__VA_ARGS__));
