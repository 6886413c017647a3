"""The registry on small packages written by the tests, and on the mechanisms of this repository."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import mutants
import pytest

from flashperf import registry
from flashperf.backends import available
from flashperf.errors import UserError
from flashperf.measure import CaseError, UnavailableError, bind_case
from flashperf.records import Case
from flashperf.registry import RegistryError

TOY = "import mutants, dataclasses\nMECHANISM = dataclasses.replace(mutants.mechanism(), name={name!r})\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An empty package of mechanisms of its own name; its folder is tmp_path / name."""
    name = "toy_" + request.node.name.replace("[", "_").replace("]", "")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def add(tmp_path: Path, package: str, name: str, text: str) -> None:
    (tmp_path / package / f"{name}.py").write_text(text)


def test_mechanisms_are_found_by_file(tmp_path: Path, package: str) -> None:
    for name in ("beta", "alpha"):
        add(tmp_path, package, name, TOY.format(name=name))
    add(tmp_path, package, "_helper", "raise RuntimeError('helpers are not imported')")
    assert registry.names(package) == ["alpha", "beta"]
    assert [m.name for m in registry.mechanisms(package)] == ["alpha", "beta"]


def test_only_the_mechanism_that_is_asked_for_is_imported(tmp_path: Path, package: str) -> None:
    add(tmp_path, package, "good", TOY.format(name="good"))
    add(tmp_path, package, "broken", "raise RuntimeError('imported')")
    assert registry.names(package) == ["broken", "good"]
    assert registry.mechanism("good", package).name == "good"
    with pytest.raises(RuntimeError, match="imported"):
        registry.mechanism("broken", package)


def test_unknown_name_gives_the_nearest(tmp_path: Path, package: str) -> None:
    add(tmp_path, package, "tiling", TOY.format(name="tiling"))
    with pytest.raises(RegistryError, match="unknown mechanism 'tilling': did you mean tiling"):
        registry.mechanism("tilling", package)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lost.py defines no MECHANISM"),
        ("MECHANISM = 'lost'", "lost.py defines no MECHANISM"),
        (TOY.format(name="other"), "defines the mechanism 'other': its name must be 'lost'"),
    ],
    ids=["empty", "wrong_type", "other_name"],
)
def test_a_file_without_its_mechanism_is_an_error(
    tmp_path: Path, package: str, text: str, message: str
) -> None:
    add(tmp_path, package, "lost", text)
    with pytest.raises(RegistryError, match=message):
        registry.mechanisms(package)


def entry(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, registry.ENTRY_POINTS)


def offer(monkeypatch: pytest.MonkeyPatch, *entries: importlib.metadata.EntryPoint) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: list(entries))


def test_other_packages_offer_mechanisms_as_entry_points(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"outside_{package}.py").write_text(TOY.format(name="outside"))
    offered = entry("outside", f"outside_{package}:MECHANISM")
    offer(monkeypatch, offered, offered)  # an editable install shows twice
    assert registry.names(package) == ["outside"]
    assert registry.mechanism("outside", package).name == "outside"


def test_two_mechanisms_of_one_name_are_an_error(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, package, "tiling", TOY.format(name="tiling"))
    offer(monkeypatch, entry("tiling", "elsewhere:MECHANISM"))
    with pytest.raises(RegistryError, match=r"two mechanisms are called 'tiling': .*elsewhere:MECHANISM"):
        registry.names(package)


def test_an_entry_point_that_does_not_load_is_an_error(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("gone", "no_such_module:MECHANISM"))
    with pytest.raises(RegistryError, match=r"entry point 'no_such_module:MECHANISM' can't be loaded"):
        registry.mechanism("gone", package)


def test_cases_start_with_the_standard() -> None:
    mechanism = mutants.mechanism(quick=mutants.right, wrong=mutants.right)
    found = registry.cases(dataclasses.replace(mechanism, standard="wrong"), "bench")
    assert [c.variant for c in found] == ["wrong", "right", "quick"]
    assert found[2].id == "toy/quick/cpu/f32/m=24-n=20"
    assert {c.seed for c in registry.cases(mechanism, seed=7)} == {7}


def test_cases_can_be_selected() -> None:
    mechanism = mutants.mechanism(quick=mutants.right)
    assert [c.variant for c in registry.cases(mechanism, variants=["quick"])] == ["quick"]
    assert registry.cases(mechanism, backends=["cuda"]) == []
    for arguments, message in (
        ({"kind": "bnech"}, "did you mean bench"),
        ({"backends": ["cup"]}, "unknown backend 'cup': did you mean cpu"),
        ({"dtypes": ["f23"]}, "unknown dtype of toy 'f23': did you mean f32"),
        ({"variants": ["rigth"]}, "unknown variant of toy 'rigth': did you mean right"),
    ):
        with pytest.raises(UserError, match=message):
            registry.cases(mechanism, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case.of("toy", "rihgt", "cpu", "f32", mutants.SIZES),
            "unknown variant of toy 'rihgt': did you mean right",
        ),
        (Case.of("toy", "right", "cuda", "f32", mutants.SIZES), "unknown backend of toy/right 'cuda'"),
        (Case.of("toy", "right", "cpu", "f16", mutants.SIZES), "unknown dtype of toy 'f16'"),
        (Case.of("toy", "right", "cpu", "f32", {"m": 4}), "sizes of toy are m, n, got m"),
        (mutants.case(m=0), "size m is 0, must be at least 1"),
        (Case.of("other", "right", "cpu", "f32", mutants.SIZES), "is a case of 'other', not of 'toy'"),
    ],
    ids=["variant", "backend", "dtype", "sizes", "zero", "mechanism"],
)
def test_a_case_that_does_not_fit_is_refused(case: Case, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        bind_case(mutants.mechanism(), case)


def test_what_can_not_run_here_says_why() -> None:
    mechanism = dataclasses.replace(mutants.mechanism(), supports=lambda case: "needs AVX-1024")
    assert registry.why_not(mechanism, mutants.case()) == "needs AVX-1024"
    with pytest.raises(UnavailableError, match="toy/right/cpu/f32/m=24-n=20: needs AVX-1024"):
        bind_case(mechanism, mutants.case())


def test_backends_give_reasons() -> None:
    assert available("cpu") == ""
    assert isinstance(available("cuda"), str)
    with pytest.raises(UserError, match="unknown backend 'cdua': did you mean cuda"):
        available("cdua")


def test_triton_is_there_with_a_gpu_and_without_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashperf import backends

    monkeypatch.setattr(backends, "_no_gpu", lambda: "no NVIDIA driver")
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert available("triton") == "no NVIDIA driver"
    monkeypatch.setattr(backends, "_no_gpu", lambda: "")
    assert available("triton") == ""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "never timed" in available("triton")
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    assert available("triton") == "triton is not installed (pip install 'flashperf[triton]')"


def test_listing_the_mechanisms_imports_no_torch() -> None:
    code = (
        "import sys; from flashperf import registry; registry.mechanisms(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
