"""Claims: the catalogue is whole, verdicts follow from intervals alone, slips are shown, runs and records hold."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_claims import around, measured, started

from flashperf import cli, registry
from flashperf.claims import analysis, arithmetic, run
from flashperf.claims.catalogue import CLAIMS, claim_named
from flashperf.claims.definition import Claim, ExplainMetric, ExplainShare, Pair, ScenarioTotal, Untestable
from flashperf.claims.judge import (
    CANT_TELL,
    CONTRADICTED,
    DIRECTION,
    NOT_MEASURED,
    NOT_TESTABLE,
    REPRODUCED,
    judge,
)
from flashperf.claims.subject import VariantPair
from flashperf.errors import UserError
from flashperf.explain import replay
from flashperf.progress import NullProgress
from flashperf.records import Interval
from flashperf.scenarios.registry import scenario_named

ROOT = Path(__file__).resolve().parent.parent
SLOWER = Claim("T1", "It is slower.", Pair("fusion", "fused", "split"), "split / fused", ratio=1.5)


def test_every_claim_of_both_documents_is_there_once() -> None:
    assert [claim.id for claim in CLAIMS] == [
        *(f"A{n}" for n in range(1, 21)),
        *(f"B{n}" for n in range(1, 22)),
    ]
    assert claim_named("b12").id == "B12"
    with pytest.raises(UserError, match="unknown claim 'A77'"):
        claim_named("a77")


@pytest.mark.parametrize(
    "claim", [c for c in CLAIMS if isinstance(c.source, Pair)], ids=lambda claim: claim.id
)
def test_a_pair_names_variants_and_sizes_that_its_mechanism_has(claim: Claim) -> None:
    pair = claim.source
    assert isinstance(pair, Pair)
    mechanism = registry.mechanism(pair.mechanism)
    assert "cpu" in mechanism.variants[pair.base]
    assert "cpu" in mechanism.variants[pair.other]
    assert dict(pair.sizes) in [dict(sizes) for sizes in mechanism.bench_sizes] or claim.id == "A6"
    assert claim.how


def test_what_claims_want_of_explanations_and_scenarios_is_there() -> None:
    explanation = replay(ROOT / "results" / "xeon-amx" / "explain-a.jsonl")
    sources = [claim.source for claim in CLAIMS]
    wanted = [s for s in sources if isinstance(s, ExplainMetric | ExplainShare) and s.preset == "a"]
    assert wanted
    assert set(run.explained_values(explanation, wanted)) == {source.key for source in wanted}
    for source in sources:
        if isinstance(source, ExplainMetric):
            assert source.metric in {metric.name for metric in explanation.metrics}
        if isinstance(source, ScenarioTotal):
            assert scenario_named(source.scenario)


@pytest.mark.parametrize(
    "measured, state",
    [
        (around(1.5), REPRODUCED),
        (around(1.4), REPRODUCED),  # the interval misses the claim, the logarithm is within the factor
        (around(4.0), DIRECTION),
        (Interval(4.0, 1.05, 15.0), DIRECTION),  # holds the claim, and much else
        (around(1.12), DIRECTION),
        (around(0.8), CONTRADICTED),
        (around(1.0, 1.01), CONTRADICTED),
        (around(1.2, 2.0), CANT_TELL),
        (Interval(2.0, 0.0, math.inf), CANT_TELL),
        (None, NOT_MEASURED),
    ],
)
def test_a_verdict_follows_from_the_interval(measured: Interval | None, state: str) -> None:
    assert judge(SLOWER, measured).state == state


def test_a_claim_of_a_gain_is_judged_the_other_way_round() -> None:
    gain = replace(SLOWER, ratio=0.65, above=False)
    assert judge(gain, around(0.65)).state == REPRODUCED
    assert judge(gain, around(0.3)).state == DIRECTION
    assert judge(gain, around(1.3)).state == CONTRADICTED
    assert judge(gain, around(0.9, 1.3)).state == CANT_TELL


def test_a_bound_is_reproduced_by_anything_beyond_it() -> None:
    bound = replace(SLOWER, ratio=1.67, at_least=True)
    assert judge(bound, around(9.0)).state == REPRODUCED
    assert judge(bound, around(1.3)).state == DIRECTION


def test_a_claim_without_a_size_needs_the_direction_only() -> None:
    verdict = judge(replace(SLOWER, ratio=None), around(9.0))
    assert (verdict.state, verdict.why) == (DIRECTION, "it gives no size")


def test_a_claim_of_a_small_effect_is_not_contradicted_by_half_of_it() -> None:
    small = replace(SLOWER, ratio=57 / 60, above=False)
    assert judge(small, around(0.97, 1.003)).state == DIRECTION
    assert judge(small, around(0.951, 1.003)).state == REPRODUCED
    assert judge(small, Interval(1.0, 1.0, 1.0)).state == CONTRADICTED


def test_what_can_not_be_tested_or_was_not_measured_says_why() -> None:
    untestable = replace(SLOWER, source=Untestable("it speaks of a GPU"))
    assert judge(untestable, around(2.0)).state == NOT_TESTABLE
    assert judge(untestable, None).why == "it speaks of a GPU"
    assert judge(SLOWER, None, "worker 1 failed").why == "worker 1 failed"


def test_slips_in_the_documents_are_shown() -> None:
    assert arithmetic.slip_of_latency() == "printed +111.7 %; 14.4 / 6.8 is 2.118, +111.8 %"
    assert "47.3 % is what remains, 52.7 % is lost" in arithmetic.slip_of_throughput()
    assert {claim.id for claim in CLAIMS if claim.slip} == {"A1", "B1", "B2", "B12"}


def test_utilisation_as_printed_counts_twice_and_leaves_out_the_end() -> None:
    alone = [(0.0, 1.0), (2.0, 3.0)]
    assert arithmetic.utilisation_as_printed(alone) == 1.0
    assert arithmetic.utilisation(alone) == pytest.approx(2 / 3)
    assert arithmetic.utilisation_as_printed(arithmetic.EXAMPLE) == 1.5
    assert arithmetic.utilisation(arithmetic.EXAMPLE) == pytest.approx(10 / 12)
    assert arithmetic.utilisation([(0.0, 9.0), (1.0, 2.0)]) == 1.0


def test_every_source_is_measured_once_and_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = measured(monkeypatch, tmp_path, ["A1", "A7", "A13", "A17", "B16", "B1", "A8"])
    states = {one.claim.id: one.verdict.state for one in report.judged}
    assert states == {
        "A1": REPRODUCED, "A7": REPRODUCED, "A13": DIRECTION, "A17": CONTRADICTED, "B16": CONTRADICTED,
        "B1": NOT_MEASURED, "A8": NOT_TESTABLE,
    }  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    pairs = {line["key"] for line in lines if line["kind"] == "block"}
    assert len(pairs) == 2  # A17 and B16 share theirs
    by_id = {one.claim.id: one for one in report.judged}
    assert by_id["B1"].verdict.why == "too little was measured"
    assert by_id["A13"].measured is not None
    assert by_id["A13"].measured.value == pytest.approx(3.0, rel=0.02)
    assert all(worker.stopped for worker in started)


def test_a_wrong_kernel_is_not_timed_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = measured(monkeypatch, tmp_path, ["A13", "A17"], wrong=("graph",))
    first, second = report.judged
    assert (first.verdict.state, second.measured is not None) == (NOT_MEASURED, True)
    assert "graph is wrong" in first.verdict.why
    blocks = (tmp_path / "record.jsonl").read_text().count('"kind": "block", "key": "graph')
    assert blocks == 0


def test_the_command_replays_and_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(monkeypatch, tmp_path, ["A1", "A13", "B2", "B12"])
    record = str(tmp_path / "record.jsonl")
    assert cli.main(["claims", "--replay", record]) == 0
    out = capsys.readouterr().out
    assert "A13 A dynamic graph has 40 % more overhead" in out
    assert "the union over the true span is 83%" in out
    assert "1 reproduced, 1 in direction, 1 not testable here, 1 not measured." in out
    assert cli.main(["claims", "A1", "--replay", record, "--markdown"]) == 0
    assert "| A1 | A single task" in capsys.readouterr().out
    assert cli.main(["claims", "--replay", record, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["claims"]
    assert [row["command"] for row in rows[:2]] == ["flashperf claims A1", "flashperf claims A13"]
    assert cli.main(["claims", "A5", "--replay", record]) == 2
    assert cli.main(["claims", "Z1"]) == 2
    assert "unknown claim 'Z1'" in capsys.readouterr().err
    assert cli.main(["claims", "A13", "--budget", "0", "--out", str(tmp_path / "out")]) == 2


def test_real_variants_are_checked_and_timed() -> None:
    held = VariantPair(seed=2)
    checks = held.prepare("launch", "whole", "chunked", {"n": 4096, "chunks": 64}, "f32")
    assert all(check["passed"] for check in checks)
    assert len(held.block(seed=1)["wall_s"]) == 8


def test_a_simulated_hit_rate_is_exact_and_says_so(tmp_path: Path) -> None:
    path = run.run_claims([claim_named("A10")], tmp_path, 30.0, 0, NullProgress())
    (judged,) = analysis.read_report(path).judged
    assert judged.measured is not None
    assert judged.measured.low == judged.measured.high
    assert 0.2 < judged.measured.value < 0.8  # passes of a split operator find what the one before left in L2
    assert "simulated" in judged.claim.how
