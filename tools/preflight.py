"""Says what is missing before anything is installed: Python 3.11, venv with pip, a C++17 compiler, disk space.

Runs on any Python 3.6 or newer, so that an old one gets a sentence and not a syntax error.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

NEEDED_MB = 700
PROGRAM = "#include <Python.h>\n#include <string_view>\nint main() { return std::string_view().size(); }\n"


def problems():
    """One sentence for each thing that is missing, with what would mend it."""
    found = []
    if sys.version_info < (3, 11):  # noqa: UP036 - an older one may run this
        version = ".".join(map(str, sys.version_info[:3]))
        found.append(
            f"Python 3.11 or newer is needed, this is {version}. Choose one: make PYTHON=python3.12 ..."
        )
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            found.append(f"the Python module {module} is missing. On Debian: apt-get install python3-venv")
    compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    usable = [name for name in compilers if name and shutil.which(name)]
    if not usable:
        found.append("a C++17 compiler is needed: g++ or clang++. On Debian: apt-get install g++")
    elif not compiles(usable[0]):
        found.append(
            f"{usable[0]} does not compile C++17 with Python.h. On Debian: apt-get install python3-dev"
        )
    free_mb = shutil.disk_usage(".").free // 2**20
    if free_mb < NEEDED_MB:
        found.append(f"{free_mb} MB of disk are free here, {NEEDED_MB} MB are needed")
    return found


def compiles(compiler):
    """Whether the compiler takes a C++17 file that includes Python's header."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "try.cpp")
        with open(source, "w") as file:
            file.write(PROGRAM)
        include = sysconfig.get_paths()["include"]
        command = [compiler, "-std=c++17", "-I" + include, "-fsyntax-only", source]
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


if __name__ == "__main__":
    missing = problems()
    for problem in missing:
        print("flashperf: " + problem, file=sys.stderr)
    sys.exit(1 if missing else 0)
