"""Imports run one way: pure, found and timed, mechanisms, pipeline, explain, out. None pulls in torch."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import flashperf

ROOT = Path(__file__).resolve().parent.parent
#: Lowest first; a module may import its own layer and those before it.
LAYERS: dict[str, str] = {
    "pure": "records dtypes suggest units stats attribution roofline check errors advice gpus processor",
    "found and timed": (
        "native signature beside isa registry backends environment disturbance energy hardware_counters memory "
        "timers measure problem blocks store state_file compare comparing worker workers progress deadline noise "
        "emulator emulator_build machine_code gpu roofs crossover"
    ),
    # a definition binds through its CUDA and Triton launches, which read its constants
    "mechanisms": "mechanisms cuda kernels traffic predict",
    "pipeline": "pipeline",
    "explain": "explain planted selfcheck gate scenarios cases claims forecast",
    "out": "report cli commands pytest_plugin benching plots gpu_run",
}
LEVEL = {name: level for level, names in enumerate(LAYERS.values()) for name in names.split()}
#: May import torch when they are imported: they train the model or are kernels of torch's own compiler.
NEEDS_TORCH = {
    "flashperf.pipeline.torch_model",
    "flashperf.pipeline.train",
    "flashperf.scenarios.parallel_worker",  # a program of its own: one rank
}
FOLDERS = {
    "flashperf": ROOT / "flashperf",
    "flashperf.kernels": ROOT / "kernels",
    "flashperf.plots": ROOT / "plots",
}


def modules() -> dict[str, Path]:
    """Module name -> file, for everything that is installed."""
    found: dict[str, Path] = {}
    for package, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = file
    return found


MODULES = modules()


def imported(name: str, text: str) -> Iterator[str]:
    """Every module that the text imports anywhere, functions and type checking included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = (
                    name.split(".") if MODULES.get(name, Path()).stem == "__init__" else name.split(".")[:-1]
                )
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            members = [f"{base}.{alias.name}" for alias in node.names]
            yield from (member if member in MODULES else base for member in members)


def level_of(name: str) -> int:
    return LEVEL[name.split(".")[1]]


def violations(name: str, text: str) -> list[str]:
    """Imports of this module that run against the direction."""
    mine = [other for other in imported(name, text) if other in MODULES and other != "flashperf"]
    return [f"{name} imports {other}" for other in mine if level_of(other) > level_of(name)]


def test_every_module_has_a_layer() -> None:
    lost = {name for name in MODULES if name != "flashperf" and name.split(".")[1] not in LEVEL}
    assert not lost, f"give these modules a layer in {Path(__file__).name}: {sorted(lost)}"


@pytest.mark.parametrize("name", [name for name in MODULES if name != "flashperf"])
def test_imports_run_one_way(name: str) -> None:
    assert not violations(name, MODULES[name].read_text())


def test_an_import_against_the_direction_is_found() -> None:
    for text in (
        "from flashperf.report import words",
        "from flashperf import report",
        "import flashperf.report.words",
        "def f():\n    from flashperf.report.words import words",
        "if TYPE_CHECKING:\n    from .report import words",
    ):
        assert violations("flashperf.stats", text), text
    assert not violations("flashperf.cli", "from flashperf.report import words\nimport numpy")


@pytest.mark.parametrize("name", [name for name in MODULES if name != "flashperf" and level_of(name) == 0])
def test_the_pure_layer_needs_numpy_and_scipy_only(name: str) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "scipy", "flashperf"}
    used = {other.partition(".")[0] for other in imported(name, MODULES[name].read_text())}
    assert used <= allowed
    assert not used & {"subprocess", "ctypes", "socket", "multiprocessing"}


def fresh_python(code: str) -> str:
    """Standard output of a new interpreter that sees this checkout."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_module_imports_torch_when_it_is_imported() -> None:
    wanted = [
        name for name in MODULES if name not in NEEDS_TORCH and not name.startswith("flashperf.kernels")
    ]
    wanted = [name for name in wanted if not name.endswith("__main__") and _is_there(name)]
    code = (
        f"import importlib, sys\nfor name in {wanted!r}:\n    importlib.import_module(name)\n"
        "    heavy = {'torch', 'triton', 'cupy'} & set(sys.modules)\n    assert not heavy, (name, heavy)\n"
    )
    fresh_python(code)


def _is_there(name: str) -> bool:
    """flashperf.plots lies in a folder of its own, which only an installation (also an editable one) maps."""
    return not name.startswith("flashperf.plots") or importlib.util.find_spec("flashperf.plots") is not None


def test_importing_the_package_costs_nothing() -> None:
    loaded = fresh_python("import sys, flashperf; print(*sys.modules)").split()
    assert not {"numpy", "scipy", "torch", "pytest"} & set(loaded)


def test_help_imports_no_torch_and_no_numpy_heavyweights() -> None:
    code = (
        "import sys\nsys.argv = ['flashperf', '--help']\nfrom flashperf.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'matplotlib', 'triton'} & set(sys.modules)\n"
    )
    assert "explain" in fresh_python(code)


@pytest.mark.parametrize("name", flashperf.__all__)
def test_exported_names_are_there(name: str) -> None:
    assert getattr(flashperf, name) is not None
    assert name in dir(flashperf)


def test_functions_can_be_called_whichever_way_they_were_imported() -> None:
    for code in (
        "import flashperf; assert callable(flashperf.compare) and callable(flashperf.explain)",
        "import flashperf.compare, flashperf.explain, flashperf; assert callable(flashperf.compare)",
        "from flashperf import compare, explain; assert callable(compare) and callable(explain)",
        "from flashperf.compare import CompareResult; import flashperf; assert callable(flashperf.compare)",
        "import flashperf.explain as e; assert callable(e) and callable(e.explain_pipeline)",
    ):
        fresh_python(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'comprae'"):
        _ = flashperf.comprae


def test_version_is_the_one_of_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert flashperf.__version__ == tomllib.load(file)["project"]["version"]
