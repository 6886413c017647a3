"""Stage: a fat binary of each CUDA file, for this GPU alone. The CPU kernels were built before (tools/gpu_run.py)."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from flashperf.cuda import binaries
from flashperf.emulator_build import source_folder


def build_cuda(architecture: str) -> bool:
    """Fat binaries of all files; NVRTC compiles at run time where there is no nvcc. True if none failed."""
    sources = sorted((source_folder() / "cuda").glob("*.cu"))
    if not shutil.which(os.environ.get("NVCC", "nvcc")):
        print("CUDA kernels: no nvcc here, NVRTC compiles each when it is first used")
        return True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        made = pool.map(lambda source: binaries.build(source, binaries.folder(), [architecture]), sources)
        problems = [text for text in made if text]
    for text in problems:
        print(text)
    print(f"CUDA kernels: {len(sources) - len(problems)} of {len(sources)} files built for {architecture}")
    return not problems


def main() -> int:
    """0 if everything was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", required=True, help="such as sm_90a, or none")
    architecture: str = parser.parse_args().architecture
    if architecture == "none":
        print("CUDA kernels: no GPU to build for, the emulator builds what it runs")
        return 0
    return 0 if build_cuda(architecture) else 1


if __name__ == "__main__":
    sys.exit(main())
