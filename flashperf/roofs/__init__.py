"""What this machine can do at best: bandwidth per memory level, arithmetic per format and unit, fixed costs.

Measured with our own kernels (csrc/cpu/roofs*.cpp, csrc/cuda/roofs.cu) in several processes, kept with the
environment, and read back by everything that places a kernel on a roofline.
"""

from flashperf.roofs.levels import CacheLevel, cache_levels
from flashperf.roofs.measuring import measure_roofs
from flashperf.roofs.model import COMPUTE, DISPATCH, LINK, MEMORY, SCRATCHPAD, TIMER, Ceiling, Roofs
from flashperf.roofs.storage import keep_roofs, kept_path, load_roofs, roofs_for, save_roofs

__all__ = [
    "COMPUTE",
    "DISPATCH",
    "LINK",
    "MEMORY",
    "SCRATCHPAD",
    "TIMER",
    "CacheLevel",
    "Ceiling",
    "Roofs",
    "cache_levels",
    "keep_roofs",
    "kept_path",
    "load_roofs",
    "measure_roofs",
    "roofs_for",
    "save_roofs",
]
