"""How much of a GPU to touch, and for how long, to measure its roofs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from flashperf.gpu.properties import GpuProperties

L2, SHARED = "L2", "shared memory"
#: Blocks per SM that are tried; the best counts, since which is best differs between GPUs.
BLOCKS_PER_SM = (2, 4, 8)
#: Of the L2: where it has two halves, a line that SMs of both sides read may be held in each.
L2_SHARE = 4
MEMORY_BYTES, MEMORY_SHARE = 2 << 30, 8
LEAST_TIMES_L2 = 8  # so many times the L2 leave little of it in there
#: Bytes that a sample of a cache moves: about half a millisecond.
SAMPLE_BYTES = 4 << 30
SHARED_ARRAY_BYTES = 8 << 10  # three of them, for four blocks, fit every SM since 8.0
SHARED_STEPS, FMA_STEPS, MMA_STEPS = 1 << 13, 1 << 14, 1 << 12  # one or two milliseconds
LINK_BYTES = 64 << 20
LAUNCHES = 200  # behind one hold, and in one graph
ALIGNED_BYTES = 16 << 10  # what a block takes at once


@dataclass(frozen=True)
class Walk:
    """Global memory: bytes of all arrays together, and how often a launch goes through them."""

    name: str
    level_bytes: int
    touched_bytes: int
    passes: int


@dataclass(frozen=True)
class GpuPlan:
    """What one process measures. ``shared_level_bytes``: the shared memory of all SMs."""

    sms: int
    walks: tuple[Walk, ...]
    shared_level_bytes: int
    notes: tuple[str, ...] = ()
    blocks_per_sm: tuple[int, ...] = BLOCKS_PER_SM
    shared_steps: int = SHARED_STEPS
    fma_steps: int = FMA_STEPS
    mma_steps: int = MMA_STEPS
    link_bytes: int = LINK_BYTES
    launches: int = LAUNCHES

    @property
    def blocks(self) -> list[int]:
        """Blocks of the launches that are tried."""
        return [self.sms * each for each in self.blocks_per_sm]


def plan_for(gpu: GpuProperties) -> GpuPlan:
    """Sizes for a GPU: a quarter of the L2 again and again, device memory once through 2 GiB or an eighth of it."""
    inside = _aligned(gpu.l2_bytes // L2_SHARE)
    outside = _aligned(min(MEMORY_BYTES, gpu.memory_bytes // MEMORY_SHARE))
    notes: tuple[str, ...] = ()
    if outside < LEAST_TIMES_L2 * gpu.l2_bytes:
        notes = (
            f"{gpu.memory_name}: {outside >> 20} MiB were touched, less than {LEAST_TIMES_L2} times the L2",
        )
    return GpuPlan(
        sms=gpu.sms,
        walks=(
            Walk(L2, gpu.l2_bytes, inside, -(-SAMPLE_BYTES // inside)),
            Walk(gpu.memory_name, 0, outside, 1),
        ),
        shared_level_bytes=gpu.sms * gpu.shared_per_sm_bytes,
        notes=notes,
    )


def _aligned(n_bytes: int) -> int:
    """Rounded down to what three equal arrays of whole blocks have."""
    unit = 6 * ALIGNED_BYTES  # a multiple of one, two and three arrays
    return max(unit, n_bytes // unit * unit)
