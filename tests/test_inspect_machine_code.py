"""The reader of machine code: opcode classes, occupancy against NVIDIA's calculator, what nvcc's errors become."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from flashperf.errors import UserError
from flashperf.machine_code import (
    LIMITS,
    CompileError,
    class_of,
    classify,
    compile_kernels,
    occupancy,
    why_not,
)
from flashperf.machine_code.compiler import first_error, two_at_a_time
from flashperf.machine_code.kernel import spill_bytes
from flashperf.machine_code.occupancy import block_shared_bytes

TWO_KERNELS = """
extern "C" __global__ void __launch_bounds__(128) copy16(const float4* x, float4* y) {
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y, int n) {
  __shared__ float kept[256];
  float many[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) many[i] = x[i * n + threadIdx.x];
  kept[threadIdx.x % 256] = many[0];
  __syncthreads();
  for (int j = 0; j < n; ++j)
#pragma unroll
    for (int i = 0; i < 64; ++i) many[i] = many[i] * many[(i + 1) % 64] + kept[j % 256];
#pragma unroll
  for (int i = 0; i < 64; ++i) y[i * n + threadIdx.x] = many[i];
}
"""

needs_tools = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("LDG.E.128.CONSTANT", "LDG.128"),
        ("LDG.E.CONSTANT", "LDG"),
        ("LDGSTS.E.BYPASS.128", "LDGSTS.128"),
        ("LDGSTS.E", "LDGSTS"),
        ("LDSM.16.M88.4", "LDSM"),
        ("LD.E", "LD"),
        ("LDL.LU", "LDL"),
        ("HMMA.16816.F32.BF16", "HMMA"),
        ("HGMMA.64x128x16.F32", "HGMMA"),
        ("UTCHMMA.2CTA", "UTCMMA"),
        ("FFMA", "FFMA"),
        ("FFMA.FTZ", "FFMA"),
        ("HFMA2.MMA", "HFMA2"),
        ("IDP.4A.S8.S8", "DP4A"),
        ("ISETP.GE.AND", "other"),
    ],
)
def test_opcodes_are_told_apart(opcode: str, kind: str) -> None:
    assert class_of(opcode) == kind


def test_classes_are_counted_in_a_fixed_order() -> None:
    assert list(classify(["MOV", "STG.E", "FFMA", "FFMA", "LDG.E"]).items()) == [
        ("FFMA", 2),
        ("LDG", 1),
        ("STG", 1),
        ("other", 1),
    ]


def test_spills_are_read_from_the_report() -> None:
    report = (
        "ptxas info    : Function properties for a\n"
        "    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Function properties for b\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    )
    assert spill_bytes(report) == {"a": 20, "b": 0}


def test_first_error_has_file_and_line() -> None:
    output = (
        '/far/away/k.cu(12): warning #177-D: unused\n/far/away/k.cu(14): error: identifier "q" is undefined\n'
    )
    assert first_error(output) == 'k.cu:14: identifier "q" is undefined'
    assert (
        first_error("nvcc fatal   : Unsupported gpu architecture\n")
        == "nvcc fatal   : Unsupported gpu architecture"
    )


@pytest.mark.parametrize("error", [UserError("add.cu:3: no"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_after_an_error_no_further_file_is_compiled(error: BaseException) -> None:
    begun: list[int] = []
    dropped = Event()  # the files that were begun go on until the last one is dropped

    def compiled(number: int) -> None:
        begun.append(number)
        dropped.wait(2)

    def compile_all() -> None:
        with two_at_a_time() as pool:
            files = [pool.submit(compiled, number) for number in range(9)]
            files[-1].add_done_callback(lambda _: dropped.set())
            raise error

    with pytest.raises(type(error)):
        compile_all()
    assert len(begun) <= 2


def test_unknown_architecture_names_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sm_90a"):
        compile_kernels(tmp_path / "k.cu", "sm_91")


# ---- occupancy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "static", "dynamic", "blocks", "limiters"),
    [
        ("sm_80", 256, 32, 0, 0, 8, ("warps", "registers")),
        ("sm_80", 32, 16, 0, 0, 32, ("blocks",)),
        ("sm_90a", 256, 128, 0, 49152, 2, ("registers",)),
        ("sm_90a", 128, 242, 0, 65536, 2, ("registers",)),
        ("sm_80", 256, 32, 0, 100 << 10, 1, ("shared memory",)),
        ("sm_89", 1024, 32, 0, 0, 1, ("warps",)),
        ("sm_89", 1024, 65, 0, 0, 0, ("registers",)),
    ],
)
def test_occupancy_known_by_hand(
    architecture: str,
    threads: int,
    registers: int,
    static: int,
    dynamic: int,
    blocks: int,
    limiters: tuple[str, ...],
) -> None:
    found = occupancy(architecture, threads, registers, static, dynamic)
    assert (found.blocks, found.limiters) == (blocks, limiters)
    assert found.warps == blocks * -(-threads // 32)


def test_occupancy_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="sm_100"):
        occupancy("sm_70", 32, 32)
    with pytest.raises(ValueError, match="1 to 1024"):
        occupancy("sm_80", 2048, 32)


def test_shared_memory_and_l1_share_one_array() -> None:
    sm = LIMITS["sm_90"]
    assert block_shared_bytes(0, 48 << 10) == 49 << 10
    assert sm.l1_bytes(0) == 256 << 10
    assert sm.l1_bytes(2 * (49 << 10)) == (256 - 100) << 10


#: NVIDIA's calculator as a shared library. Every attribute is set as a launch that opts in to all shared memory.
_CALCULATOR = """
#include <climits>
#include <cstring>
#include <cuda_occupancy.h>
extern "C" int blocks(int major, int minor, int max_threads, int shared, int shared_block, int threads,
                      int registers, int static_shared, int dynamic_shared) {
  cudaOccDeviceProp device;
  device.computeMajor = major, device.computeMinor = minor, device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = max_threads, device.regsPerBlock = 65536;
  device.regsPerMultiprocessor = 65536, device.warpSize = 32, device.sharedMemPerBlock = 49152;
  device.sharedMemPerMultiprocessor = shared, device.numSms = 1, device.sharedMemPerBlockOptin = shared_block;
  device.reservedSharedMemPerBlock = 1024;
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = INT_MAX, function.numRegs = registers;
  function.sharedSizeBytes = static_shared, function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = dynamic_shared, function.numBlockBarriers = 1;
  cudaOccDeviceState state;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result;
  std::memset(&result, 0, sizeof result);
  const auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads,
                                                              dynamic_shared);
  return status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -static_cast<int>(status);
}
"""


def _header_folder() -> Path | None:
    """Where ``cuda_occupancy.h`` is: a toolkit, the wheel nvidia-cuda-runtime, or Triton's own copy."""
    places = [Path("/usr/local/cuda/include"), *Path("/usr/local").glob("cuda-*/include")]
    for entry in map(Path, sys.path):
        places += [*entry.glob("nvidia/*/include"), entry / "triton/backends/nvidia/include"]
    return next((place for place in places if (place / "cuda_occupancy.h").exists()), None)


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int]:
    headers = _header_folder()
    if headers is None:
        pytest.skip("cuda_occupancy.h is not here (pip install nvidia-cuda-runtime)")
    if not shutil.which("g++"):
        pytest.skip("g++ is not here")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "calculator.cpp").write_text(_CALCULATOR)
    library = folder / "calculator.so"
    command = ["g++", "-O1", "-w", "-shared", "-fPIC", "-I", str(headers), str(folder / "calculator.cpp")]
    subprocess.run([*command, "-o", str(library)], check=True)
    blocks: Callable[..., int] = ctypes.CDLL(str(library)).blocks
    return blocks


@pytest.mark.parametrize("architecture", LIMITS)
def test_occupancy_is_that_of_the_calculator(architecture: str, calculator: Callable[..., int]) -> None:
    sm, choose = LIMITS[architecture], random.Random(7)
    major, minor = divmod(int(architecture.removeprefix("sm_")), 10)
    most = sm.shared_bytes - 1024  # that a block can ask for
    for _ in range(2000):
        threads, registers = choose.randint(1, 1024), choose.randint(1, 255)
        static = choose.choice([0, choose.randint(0, 48 << 10)])
        dynamic = choose.choice([0, choose.randint(0, most - static)])
        theirs = calculator(
            major, minor, 32 * sm.max_warps, sm.shared_bytes, most, threads, registers, static, dynamic
        )
        ours = occupancy(architecture, threads, registers, static, dynamic).blocks
        assert ours == theirs, (threads, registers, static, dynamic)


# ---- compiled --------------------------------------------------------------------------------------------


@needs_tools
def test_a_kernel_is_compiled_and_read(tmp_path: Path) -> None:
    source = tmp_path / "two.cu"
    source.write_text(TWO_KERNELS)
    for architecture in ("sm_80", "sm_90a"):
        kernels = compile_kernels(source, architecture)
        assert compile_kernels(source, architecture) == kernels  # from the cache the same
        copy, spills = kernels["copy16"], kernels["spills"]
        assert (copy.count("LDG.128"), copy.count("STG.128")) == (1, 1)
        assert (copy.spilled, copy.static_shared_bytes, copy.tensor_core) == (False, 0, ())
        assert spills.spilled
        assert spills.local_accesses > 0
        assert spills.registers <= 32
        assert spills.static_shared_bytes == 1024  # without what the system reserves


@needs_tools
def test_what_does_not_compile_is_said_with_its_line(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void k(int* x) {\n  *x = missing;\n}\n')
    with pytest.raises(CompileError, match=r"broken\.cu:2: .*missing"):
        compile_kernels(source, "sm_80")
