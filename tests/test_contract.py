"""The contract of every mechanism: every case of every variant on every backend that is here is right.

The variants of CUDA have a file of their own (test_cuda_contract.py): they run without a GPU as well.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from flashperf import native, registry
from flashperf.dtypes import NUMPY_TYPES
from flashperf.measure import bind_case
from flashperf.problem import load_problem
from flashperf.records import Case, Cost, Mechanism

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = {f"{document}{n}" for document, last in (("A", 20), ("B", 21)) for n in range(1, last + 1)}
MECHANISMS = {name: registry.mechanism(name) for name in registry.names()}
CASES = [(name, case) for name, m in MECHANISMS.items() for case in registry.cases(m, "test")]
BENCH_CASES = [(name, case) for name, m in MECHANISMS.items() for case in registry.cases(m, "bench")]

RUN = [(name, case) for name, case in CASES if case.backend == "cpu"]


def stems(folder: str, pattern: str, prefix: str = "") -> set[str]:
    return {file.stem.removeprefix(prefix) for file in (ROOT / folder).glob(pattern)}


def test_there_are_mechanisms() -> None:
    assert MECHANISMS, "no mechanism was found"


@pytest.mark.parametrize("name, case", RUN, ids=[case.id for _, case in RUN])
def test_case_is_right(name: str, case: Case) -> None:
    """bind_case poisons outputs, checks shape, dtype and values twice, and that inputs stay as they were."""
    mechanism = MECHANISMS[name]
    reason = registry.why_not(mechanism, case)
    if reason:
        pytest.skip(reason)
    bound = bind_case(mechanism, case)
    assert bound.check.passed
    for output, spec in mechanism.outputs(case).items():
        assert bound.outputs[output].shape == spec.shape
        assert bound.outputs[output].dtype == NUMPY_TYPES[spec.dtype]


def check_cost(mechanism: Mechanism, case: Case) -> None:
    cost = mechanism.cost(case)
    for field in dataclasses.fields(Cost):
        value = getattr(cost, field.name)
        assert type(value) is int, f"{field.name} is {value!r}: costs are exact integers"
        assert value >= 0
    assert cost.bytes_written > 0
    assert cost.bytes_read > 0
    assert cost.launches >= 1
    ideal = mechanism.ideal_bytes(case)
    assert type(ideal) is int
    assert 0 < ideal <= cost.bytes, "the mechanism's minimum is above what this variant moves"


@pytest.mark.parametrize("name, case", CASES + BENCH_CASES, ids=[case.id for _, case in CASES + BENCH_CASES])
def test_cost_is_declared(name: str, case: Case) -> None:
    check_cost(MECHANISMS[name], case)


@pytest.mark.parametrize("name, case", CASES, ids=[case.id for _, case in CASES])
def test_outputs_are_counted_as_written(name: str, case: Case) -> None:
    """Every output is written at least once, so its bytes are part of the cost."""
    mechanism = MECHANISMS[name]
    sizes = [
        int(np.prod(s.shape, dtype=np.int64)) * NUMPY_TYPES[s.dtype].itemsize
        for s in mechanism.outputs(case).values()
    ]
    assert mechanism.cost(case).bytes_written >= sum(sizes)


@pytest.mark.parametrize("name, case", CASES, ids=[case.id for _, case in CASES])
def test_inputs_depend_on_the_seed_alone(name: str, case: Case) -> None:
    mechanism = MECHANISMS[name]
    first, again = mechanism.make_inputs(case), mechanism.make_inputs(case)
    standard = mechanism.make_inputs(case.with_variant(mechanism.standard))
    for key, array in first.items():
        assert array.tobytes() == again[key].tobytes()
    for key in first.keys() & standard.keys():
        assert first[key].tobytes() == standard[key].tobytes(), "variants are compared on the same inputs"


@pytest.mark.parametrize("name", MECHANISMS)
def test_tolerances_have_reasons(name: str) -> None:
    mechanism = MECHANISMS[name]
    for case in registry.cases(mechanism, "test"):
        tolerance = mechanism.tolerance(case)
        assert len(tolerance.reason) > 10, f"{case.id}: why this tolerance?"
        assert tolerance.relative >= 0
        assert tolerance.absolute >= 0


@pytest.mark.parametrize("name", MECHANISMS)
def test_definition_is_whole(name: str) -> None:
    mechanism = MECHANISMS[name]
    assert mechanism.question.endswith("?")
    assert set(mechanism.claims) <= CLAIMS
    assert mechanism.test_sizes
    assert mechanism.bench_sizes
    assert len(mechanism.variants) >= 2
    assert mechanism.standard != mechanism.flash
    assert set(mechanism.dtypes) <= set(NUMPY_TYPES)
    assert set(mechanism.stand_in) <= set(mechanism.variants)
    ids = [case.id for case in registry.cases(mechanism, "test")]
    assert len(ids) == len(set(ids))
    for text in ids:
        assert Case.parse(text).id == text


@pytest.mark.parametrize("name", MECHANISMS)
def test_some_variant_runs_on_a_cpu(name: str) -> None:
    mechanism = MECHANISMS[name]
    cases = registry.cases(mechanism, "test", backends=["cpu"])
    assert any(not registry.why_not(mechanism, case) for case in cases)


def test_every_mechanism_has_a_bench_and_every_bench_a_mechanism() -> None:
    benches = stems("bench", "bench_*.py", "bench_") - {"paradox"}
    assert benches == set(MECHANISMS)
    for name in benches:
        text = (ROOT / "bench" / f"bench_{name}.py").read_text()
        assert f'test_{name} = bench_cases("{name}")' in text


def mentions(folders: dict[str, str]) -> Iterator[str]:
    """Every string in the files of folder -> pattern, as ``strings`` gives them."""
    for folder, pattern in folders.items():
        for file in (ROOT / folder).rglob(pattern):
            yield from strings(file.read_text())


def strings(text: str) -> Iterator[str]:
    """The strings of a module as regular expressions: a gap in an f-string is any word, as is a prefix's rest."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            prefixes = [a.value for a in node.args if isinstance(a, ast.Constant) and len(str(a.value)) > 4]
            yield from (re.escape(str(prefix)) + r"\w+" for prefix in prefixes)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [re.escape(p.value) if isinstance(p, ast.Constant) else r"\w+" for p in node.values]
            if any(len(part) > 4 for part in parts if part != r"\w+"):  # "{a}_{b}" would name every kernel
                yield "".join(parts)


def unnamed(kernels: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The kernels that no pattern names."""
    words = [p for p in set(patterns) if re.fullmatch(r"[\w\\+]+", p)]
    return [kernel for kernel in kernels if not any(re.fullmatch(word, kernel) for word in words)]


def bound_kernels(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels that the test cases of all mechanisms bind on this machine."""
    bound: set[str] = set()
    prepare = native.Library.prepare

    def watched(library: native.Library, kernel: str, *arrays: np.ndarray, **scalars: float) -> native.Call:
        bound.add(kernel)
        return prepare(library, kernel, *arrays, **scalars)

    monkeypatch.setattr(native.Library, "prepare", watched)
    for name, case in CASES:
        if not registry.why_not(MECHANISMS[name], case):
            load_problem(MECHANISMS[name], case).bind()
    return bound


def test_every_kernel_is_used_by_a_mechanism_or_has_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    used = bound_kernels(monkeypatch)
    kernels = [kernel for kernel in native.library().signatures if kernel not in used]
    users = {"flashperf": "*.py", "tests": "*.py"}
    lost = unnamed(kernels, mentions(users))
    assert not lost, f"kernels that no mechanism binds and no module or test names: {lost}"


def test_the_search_for_kernels_tells_names_apart() -> None:
    def found(kernel: str, text: str) -> bool:
        return not unnamed([kernel], strings(text))

    assert found("gemm_f32_packed", 'prepare("gemm_f32_packed", x)')
    assert found("gemm_f32_packed", 'prepare(f"gemm_{dtype}_{layout}", x)')
    assert found("copy_bf16", "prepare(f'copy_{case.dtype}', x)")
    assert found("peak_f32_fma", "[k for k in kernels if k.startswith('peak_')]")
    assert not found("gemm_f32_packed", 'prepare("gemm_f32", x)')
    assert not found("copy_bf16", "prepare(f'pack_{case.dtype}', x)")
    assert not found("copy_bf16", "f'{kernel}_{dtype}'")


def test_every_kernel_file_publishes_a_kernel() -> None:
    silent = {f.name for f in (ROOT / "csrc" / "cpu").glob("*.cpp") if "FP_KERNEL" not in f.read_text()}
    assert silent == {"table.cpp"}


def test_triton_kernel_files_belong_to_a_mechanism() -> None:
    assert stems("kernels", "[!_]*.py") <= set(MECHANISMS)
