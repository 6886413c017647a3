"""What a compiled CUDA kernel holds: registers, shared memory, spills, opcodes, and the occupancy that follows.

No GPU is needed: nvcc (or Triton) compiles, the disassembler reads. ``compile_kernels`` does both for a ``.cu``
file, ``read_cubin`` reads a binary that something else compiled::

    from flashperf.machine_code import read_cubin, why_not
    kernel = read_cubin(compiled.asm["cubin"])["my_kernel"]     # bytes or a path
    kernel.registers, kernel.spilled, kernel.count("HMMA"), kernel.count("LDG.128")
"""

from flashperf.machine_code.compiler import ARCHITECTURES, CompileError, compile_kernels
from flashperf.machine_code.kernel import KernelCode, read_cubin
from flashperf.machine_code.occupancy import LIMITS, Occupancy, occupancy
from flashperf.machine_code.opcodes import CLASSES, TENSOR_CORE, class_of, classify
from flashperf.machine_code.toolchain import tool, why_not

__all__ = [
    "ARCHITECTURES",
    "CLASSES",
    "LIMITS",
    "TENSOR_CORE",
    "CompileError",
    "KernelCode",
    "Occupancy",
    "class_of",
    "classify",
    "compile_kernels",
    "occupancy",
    "read_cubin",
    "tool",
    "why_not",
]
