"""One compiled kernel, and how it is read from a binary."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashperf.errors import UserError
from flashperf.machine_code.opcodes import TENSOR_CORE, classify
from flashperf.machine_code.toolchain import tool

_RESERVED_SHARED_BYTES = 1024  # from sm_90 on the binary's shared memory has what the system takes per block
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_SPILLS = re.compile(
    r"Function properties for (\S+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


@dataclass(frozen=True)
class KernelCode:
    """What the machine code of a kernel holds.

    architecture: ``sm_90``, as the binary says, without the letter
    registers:    32-bit registers per thread
    static_shared_bytes: per block, without what the system reserves
    spill_bytes:  what ptxas said it writes and reads because registers did not suffice; None if it wasn't asked
    opcodes:      class (``flashperf.machine_code.CLASSES``) -> instructions in the code
    """

    name: str
    architecture: str
    registers: int
    static_shared_bytes: int
    stack_bytes: int
    opcodes: Mapping[str, int]
    spill_bytes: int | None = None

    def count(self, *classes: str) -> int:
        """Instructions of these classes."""
        return sum(self.opcodes.get(name, 0) for name in classes)

    @property
    def local_accesses(self) -> int:
        """Loads and stores of local memory: spills, or arrays that are indexed by a variable."""
        return self.count("LDL", "STL")

    @property
    def spilled(self) -> bool:
        """Whether registers were spilled to memory; without ptxas's word, whether local memory is used at all."""
        return self.local_accesses > 0 if self.spill_bytes is None else self.spill_bytes > 0

    @property
    def tensor_core(self) -> tuple[str, ...]:
        """The classes of Tensor Core products that it has."""
        return tuple(name for name in TENSOR_CORE if self.opcodes.get(name))


def _output(name: str, *arguments: str) -> str:
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True)
    if done.returncode:
        problem = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{name} can't read the binary: {problem[0] if problem else 'no message'}")
    return done.stdout


def spill_bytes(report: str) -> dict[str, int]:
    """Kernel -> bytes of spill stores and loads, from what ``ptxas -v`` printed."""
    return {name: int(stores) + int(loads) for name, stores, loads in _SPILLS.findall(report)}


def read_cubin(cubin: Path | bytes, ptxas_report: str = "") -> dict[str, KernelCode]:
    """The kernels of a cubin (a path, or its bytes) by name, with nvdisasm and cuobjdump.

    ``ptxas_report`` is what ``ptxas -v`` printed when it was made, for the spilled bytes. Raises UserError if the
    tools are missing or can't read it.
    """
    if isinstance(cubin, bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(cubin)
            return read_cubin(path, ptxas_report)
    header, functions = json.loads(_output("nvdisasm", "-json", str(cubin)))
    version = header["SM"]["version"]
    capability = 10 * version["major"] + version["minor"]
    reserved = _RESERVED_SHARED_BYTES if capability >= 90 else 0
    usage = {name: rest for name, *rest in _USAGE.findall(_output("cuobjdump", "-res-usage", str(cubin)))}
    spills = spill_bytes(ptxas_report)
    found = {}
    for function in functions:
        name = function["function-name"]
        if name not in usage:  # a device function that was not inlined
            continue
        registers, stack, shared = map(int, usage[name])
        found[name] = KernelCode(
            name=name,
            architecture=f"sm_{capability}",
            registers=registers,
            static_shared_bytes=max(0, shared - reserved),
            stack_bytes=stack,
            opcodes=classify(one["opcode"] for one in function["sass-instructions"]),
            spill_bytes=spills.get(name),
        )
    return found
