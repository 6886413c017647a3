"""Set-up for ``python -m flashperf.gpu_run`` with the Python and the packages that are here, then that command.

Builds the CPU kernels in place, and where the checkout isn't installed makes kernels/ and plots/ importable.
Nothing is downloaded. Only the standard library is used before the build is done.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 480.0
BUILD_LIMIT_S = 240.0
NEEDED = (
    "numpy",
    "scipy",
    "matplotlib",
    "rich",
    "typer",
    "jinja2",
    "psutil",
    "threadpoolctl",
    "pybind11",
    "setuptools",
)


def missing() -> list[str]:
    """Packages without which nothing runs."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def built() -> bool:
    """Whether the CPU kernels and their binding are there."""
    package = ROOT / "flashperf"
    return any(package.glob("_native*.so")) and any((package / "_cpu").glob("*.so"))


def link_packages() -> None:
    """``flashperf.kernels`` and ``flashperf.plots``, which an installation maps to folders beside the package."""
    for name in ("kernels", "plots"):
        link = ROOT / "flashperf" / name
        if importlib.util.find_spec(f"flashperf.{name}") is None and not link.exists():
            link.symlink_to(Path("..") / name)


def build() -> bool:
    """Build the CPU kernels, for this CPU alone; True if that worked."""
    print("building the CPU kernels ...", flush=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    variables = {**os.environ, "FLASHPERF_LEVELS": "native"}
    try:
        return subprocess.run(command, cwd=ROOT, env=variables, timeout=BUILD_LIMIT_S).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"the build took more than {BUILD_LIMIT_S:.0f} s", file=sys.stderr)
        return False


def main() -> int:
    """Build what isn't built, then run; the time for building counts."""
    begin = time.monotonic()
    absent = missing()
    if absent:
        print(f"flashperf: {sys.executable} lacks {', '.join(absent)}", file=sys.stderr)
        return 2
    if not built() and not build():
        print("flashperf: the CPU kernels could not be built; nothing runs without them", file=sys.stderr)
        return 1
    sys.path.insert(0, str(ROOT))
    link_packages()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    arguments = sys.argv[1:]
    if "--budget" not in arguments:
        arguments = ["--budget", f"{BUDGET_S - (time.monotonic() - begin):.0f}", *arguments]
    command = [sys.executable, "-m", "flashperf.gpu_run", *arguments]
    return subprocess.call(command, cwd=ROOT, env=variables)


if __name__ == "__main__":
    sys.exit(main())
