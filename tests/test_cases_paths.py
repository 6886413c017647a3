"""Cases as they are declared: paths agree, are seen to have run, and a path that did not run is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashperf.cases import guards, registry, subject
from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.evidence import objection
from flashperf.cases.guards import Machine
from flashperf.cases.rules import MECHANISMS
from flashperf.errors import UserError

MACHINE = Machine(torch="2.13.0", isa=frozenset({"avx2"}), cores=4, compiler=True, cuda=False)
CASES = registry.all_cases()


def toy(**changes: Any) -> OpenCase:
    def make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
        x = np.arange(sizes["n"], dtype=np.float32)
        factor = {"good": 1.0, "bad": 1.1, "zero": 0.0}[path]
        return Built(call=lambda: factor * x, proof=None)

    case = OpenCase(
        id="T1", name="toy", title="", source="", reported="", axis="n", baseline="good", optimised="bad", make=make,
        points=(Point({"n": 8}, 8),), expectation=Expectation("slower", "transfer"),
    )  # fmt: skip
    return replace(case, **changes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_definition_says_what_it_needs_to(case: OpenCase) -> None:
    assert case.source
    assert case.reported
    assert case.expectation.mechanism in MECHANISMS
    assert guards.torch_installed in case.requires
    assert {path for _, path in case.pairs()} == {case.optimised, *case.others}
    assert (case.headline, case.optimised) in case.pairs()


def test_the_ten_cases_are_there_by_id_and_by_name() -> None:
    assert [case.id for case in CASES] == [f"A{n}" for n in range(1, 11)]
    assert registry.case_named("a4") is registry.case_named("padded-batch")
    with pytest.raises(UserError, match="did you mean padded-batch"):
        registry.case_named("padded-batches")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if not case.fresh], ids=lambda case: case.name)
def test_every_path_is_right_and_is_seen_to_have_run(case: OpenCase, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the paths of the cases are torch's")
    why_not = guards.first_reason(case.requires, guards.this_machine())
    if why_not:
        pytest.skip(why_not)
    monkeypatch.setattr(subject, "_LEAST_SAMPLE_S", 0.0)
    held = subject.CaseSubject(seed=3)
    for path in (case.optimised, *case.others):
        sides = held.prepare(case.id, case.headline, path, check=True)["sides"]
        assert all(side["first_s"] > 0 for side in sides)
        block = held.block(case.id, case.headline, path, seed=1)
        assert len(block["wall_s"]) == 8


@pytest.mark.slow
def test_the_growing_length_is_compiled_and_told_call_by_call() -> None:
    pytest.importorskip("torch", reason="compiles with torch")
    case = registry.case_named("A9")
    why_not = guards.first_reason(case.requires, guards.this_machine())
    if why_not:
        pytest.skip(why_not)
    built = case.make("compiled", {"shortest": 3, "longest": 6}, 0)
    told = built.call()
    assert len(told["times_s"]) == 4
    assert told["compilations"] in (1, 2)
    assert case.make("eager", {"shortest": 3, "longest": 4}, 0).call()["compilations"] == 0


@pytest.mark.parametrize("wrong", ["bad", "zero"])
def test_a_path_with_another_result_is_refused(wrong: str) -> None:
    case = toy(optimised=wrong)
    built = tuple(case.make(name, {"n": 8}, 0) for name in ("good", wrong))
    with pytest.raises(subject.WrongPathError, match=f"{wrong} is wrong"):
        subject.compare_results(case, ("good", wrong), built)  # type: ignore[arg-type]


def test_a_result_of_another_shape_is_refused() -> None:
    case = toy()
    built = case.make("good", {"n": 8}, 0), case.make("good", {"n": 9}, 0)
    with pytest.raises(subject.WrongPathError, match="other shapes"):
        subject.compare_results(case, ("good", "bad"), built)


def test_a_path_with_a_reference_is_held_against_it_and_not_against_the_baseline() -> None:
    built = (
        Built(call=lambda: np.ones(3), proof=None),
        Built(call=lambda: np.zeros(3) + 5, reference=lambda: np.full(3, 5.0), proof=None),
    )
    subject.compare_results(toy(), ("good", "bad"), built)


def test_what_did_not_run_is_named() -> None:
    seen = Counter({"aten::mm": 2, "aten::relu": 1, "Torch-Compiled Region: 0/0": 1})
    assert (
        objection(Proof(ops=("aten::mm", "Torch-Compiled Region"), absent=("aten::add",)), seen, None) == ""
    )
    assert "aten::addmm did not run; seen: aten::mm" in objection(Proof(ops=("aten::addmm",)), seen, None)
    assert objection(Proof(absent=("aten::relu",)), seen, None) == "aten::relu ran, and should not have"
    assert "the module is flashperf.cases.definition.Proof" in objection(
        Proof(module="Linear"), seen, Proof()
    )
    assert "the module is none" in objection(Proof(module="Linear"), seen, None)


def test_guards_give_their_reason() -> None:
    assert guards.torch_installed(MACHINE) == ""
    assert "pip install" in guards.torch_installed(replace(MACHINE, torch=""))
    assert guards.torch_at_least(2, 6)(MACHINE) == ""
    assert guards.torch_at_least(3, 0)(MACHINE) == "needs torch 3.0 or newer, and this is 2.13.0"
    assert "C++ compiler" in guards.cxx_compiler(replace(MACHINE, compiler=False))
    assert guards.cores_at_least(8)(MACHINE) == "needs 8 cores, and 4 can be used"
    assert guards.isa_without("avx512_fp16", "amx_fp16")(MACHINE) == ""
    assert guards.isa_without("avx2", "amx_fp16")(MACHINE) == "this CPU has avx2"
    assert guards.gpu(MACHINE) == "needs a GPU"
    assert guards.first_reason((guards.torch_installed, guards.gpu), MACHINE) == "needs a GPU"


def test_a_case_without_its_headline_or_with_an_unknown_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="no point 3"):
        toy(headline=3)
    with pytest.raises(ValueError, match="'worse'"):
        toy(expectation=Expectation("worse", "transfer"))
