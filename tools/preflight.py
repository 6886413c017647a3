"""Says what is missing before anything is installed: Python 3.11, venv with pip, a C++17 compiler, disk space.

Runs on any Python 3, so that an old one gets a sentence and not a syntax error.
"""

import os
import shutil
import subprocess
import sys
import tempfile

NEEDED_MB = 700


def problems():
    found = []
    if sys.version_info < (3, 11):
        version = ".".join(map(str, sys.version_info[:3]))
        found.append("Python 3.11 or newer is needed, this is %s. Choose one: make PYTHON=python3.12 ..." % version)
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            found.append("the Python module %s is missing. On Debian: apt-get install python3-venv" % module)
    compilers = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name and shutil.which(name)]
    if not compilers:
        found.append("a C++17 compiler is needed, none of g++, clang++, c++ is on the path. On Debian: apt-get install g++")
    elif not compiles(compilers[0]):
        found.append("%s does not compile a C++17 file with Python.h; on Debian: apt-get install g++ python3-dev" % compilers[0])
    free_mb = shutil.disk_usage(".").free // 2**20
    if free_mb < NEEDED_MB:
        found.append("%d MB of disk are free here, %d MB are needed" % (free_mb, NEEDED_MB))
    return found


def compiles(compiler):
    import sysconfig

    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "try.cpp")
        with open(source, "w") as file:
            file.write("#include <Python.h>\n#include <string_view>\nint main() { return std::string_view().size(); }\n")
        command = [compiler, "-std=c++17", "-I" + sysconfig.get_paths()["include"], "-fsyntax-only", source]
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


if __name__ == "__main__":
    missing = problems()
    for problem in missing:
        print("flashperf: " + problem, file=sys.stderr)
    sys.exit(1 if missing else 0)
