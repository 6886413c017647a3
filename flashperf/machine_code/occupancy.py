"""Theoretical occupancy: how many warps of a kernel an SM can hold, and what limits them. Pure.

The rules are those of NVIDIA's occupancy calculator (``cuda_occupancy.h``, against which this is tested); limits
from the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.suggest import unknown_name

_WARP = 32
_PARTITIONS = 4  # of an SM; registers are allocated in each
_REGISTERS_UNIT = 256  # per warp
_SHARED_UNIT_BYTES = 128
_RESERVED_SHARED_BYTES = 1024  # the system's share of every block
_MAX_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds. ``carveouts_kib``: how large its shared memory can be made; the rest is L1."""

    max_warps: int
    max_blocks: int
    registers: int
    unified_bytes: int
    carveouts_kib: tuple[int, ...]

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that an SM can have."""
        return self.carveouts_kib[-1] << 10

    def l1_bytes(self, shared_bytes: int) -> int:
        """What is left for L1 beside the smallest carveout that holds this much shared memory."""
        fitting = [kib << 10 for kib in self.carveouts_kib if kib << 10 >= shared_bytes]
        return self.unified_bytes - (fitting[0] if fitting else self.shared_bytes)


_SM_90 = SmLimits(64, 32, 65536, 256 << 10, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
#: Architecture -> limits; the letter of sm_90a makes no difference.
LIMITS: dict[str, SmLimits] = {
    "sm_80": SmLimits(64, 32, 65536, 192 << 10, (0, 8, 16, 32, 64, 100, 132, 164)),
    "sm_89": SmLimits(48, 24, 65536, 128 << 10, (0, 8, 16, 32, 64, 100)),
    "sm_90": _SM_90,
    "sm_100": _SM_90,
}


@dataclass(frozen=True)
class Occupancy:
    """blocks and warps resident on an SM; fraction of the warps that it could hold; what the limit comes from."""

    blocks: int
    warps: int
    fraction: float
    limiters: tuple[str, ...]  # of "warps", "blocks", "registers", "shared memory"; several where they tie


def limits(architecture: str) -> SmLimits:
    """The limits of an architecture's SM. Raises ValueError, with the known names, for any other."""
    plain = architecture.rstrip("af")
    if plain not in LIMITS:
        raise ValueError(unknown_name("architecture", architecture, LIMITS))
    return LIMITS[plain]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def block_shared_bytes(static_bytes: int, dynamic_bytes: int) -> int:
    """What a block's shared memory takes on an SM, the system's share with it."""
    return _round_up(static_bytes + dynamic_bytes + _RESERVED_SHARED_BYTES, _SHARED_UNIT_BYTES)


def _register_blocks(sm: SmLimits, registers: int, warps: int) -> int:
    if registers > _MAX_REGISTERS_PER_THREAD:
        return 0
    per_warp = _round_up(max(1, registers) * _WARP, _REGISTERS_UNIT)
    if per_warp * _round_up(warps, _PARTITIONS) > sm.registers:
        return 0
    return sm.registers // _PARTITIONS // per_warp * _PARTITIONS // warps


def occupancy(
    architecture: str,
    threads: int,
    registers: int,
    static_shared_bytes: int = 0,
    dynamic_shared_bytes: int = 0,
) -> Occupancy:
    """How many blocks of ``threads`` threads an SM of ``architecture`` holds at once; 0 if it can't hold one.

    registers: per thread; shared bytes: per block. Raises ValueError for an unknown architecture or a block that
    isn't of 1 to 1024 threads.
    """
    sm = limits(architecture)
    if not 1 <= threads <= 1024:
        raise ValueError(f"a block has 1 to 1024 threads, not {threads}")
    warps = math.ceil(threads / _WARP)
    fits = {
        "warps": sm.max_warps // warps,
        "blocks": sm.max_blocks,
        "registers": _register_blocks(sm, registers, warps),
        "shared memory": sm.shared_bytes // block_shared_bytes(static_shared_bytes, dynamic_shared_bytes),
    }
    blocks = min(fits.values())
    limiters = tuple(name for name, count in fits.items() if count == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.max_warps, limiters)
