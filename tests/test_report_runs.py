"""``flashperf report``: what it reads, what it compares, what it refuses."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import samples
from sample_parts import amount, ratio

from flashperf import cli
from flashperf.records import Explanation
from flashperf.report import run_sections
from flashperf.report.as_csv import csv_tables
from flashperf.report.run_sections import report_page
from flashperf.report.two_runs import RUN_SD, compare_runs
from flashperf.stats import t_quantile
from flashperf.store import RecordWriter


def slower(explanation: Explanation, factor: float) -> Explanation:
    """The same run with every share of tiling and the total ``factor`` times larger."""

    def scaled(share: Any) -> Any:
        return dataclasses.replace(share, share=ratio(share.share.value * factor))

    found = explanation.attribution
    shares = tuple(scaled(s) if s.switch == "tiling" else s for s in found.shares)
    total = ratio(found.total.value * factor)
    return dataclasses.replace(
        explanation, attribution=dataclasses.replace(found, shares=shares, total=total)
    )


def test_a_run_against_itself_shows_no_change() -> None:
    found = compare_runs(samples.paradox(), samples.paradox())
    assert found.differences == ()
    for change in (found.total, *found.shares):
        assert change.ratio is not None
        assert change.ratio.value == pytest.approx(1)
        assert change.ratio.low < 1 < change.ratio.high


def test_a_changed_share_is_found_and_only_that() -> None:
    found = compare_runs(samples.paradox(), slower(samples.paradox(), 1.2))
    changed = [c.name for c in found.shares if c.ratio and not c.ratio.low < 1 < c.ratio.high]
    assert changed == ["tiling"]
    assert found.total.ratio is not None
    assert found.total.ratio.value == pytest.approx(1.2)


def test_the_interval_is_that_of_two_independent_t_intervals() -> None:
    run = samples.paradox()
    workers = run.attribution.workers
    total = run.attribution.total
    half = math.log(total.high / total.low) / 2
    found = compare_runs(run, run).total.ratio
    assert found is not None
    se = math.sqrt(2) * half / t_quantile(0.95, workers - 1)
    expected = se * t_quantile(0.95, 2 * (workers - 1))  # equal variances: Welch's degrees of freedom
    assert math.log(found.high) == pytest.approx(expected, rel=1e-6)


def test_times_carry_the_component_between_runs_and_shares_do_not() -> None:
    run = dataclasses.replace(
        samples.paradox(),
        metrics=(dataclasses.replace(samples.paradox().metrics[0], standard=amount(1.0, 1e-9)),),
    )
    change = compare_runs(run, run).metrics[0].ratio
    assert change is not None
    assert math.log(change.high) == pytest.approx(1.96 * math.sqrt(2) * RUN_SD, rel=0.01)


def test_what_differs_between_the_runs_is_named() -> None:
    before = samples.paradox()
    environment = dataclasses.replace(before.environment, device="another", isa=("avx2",))
    after = dataclasses.replace(before, environment=environment, flash={**before.flash, "tiling": "naive"})
    said = "; ".join(compare_runs(before, after).differences)
    assert "device: " in said
    assert "→ another" in said
    assert "flash tiling: bad_tile → naive" in said


def test_csv_holds_every_digit_and_leaves_missing_ones_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_tables(samples.paradox())["metrics.csv"])))
    assert float(rows[0]["standard"]) == samples.paradox().metrics[0].standard.value  # type: ignore[union-attr]
    energy = next(row for row in rows if row["metric"] == "energy")
    assert energy["standard"] == energy["ratio"] == ""
    assert "RAPL" in energy["note"]


def test_a_name_that_a_spreadsheet_would_run_is_defused() -> None:
    metric = dataclasses.replace(samples.paradox().metrics[0], name="=HYPERLINK()")
    text = csv_tables(dataclasses.replace(samples.paradox(), metrics=(metric,)))["metrics.csv"]
    assert "\n'=HYPERLINK()," in text


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Two records whose replay gives synthetic explanations, the second slower."""
    paths = [tmp_path / "before.jsonl", tmp_path / "after" / "record.jsonl"]
    found = dict(zip(paths, (samples.paradox(), slower(samples.paradox(), 1.2)), strict=True))
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        with RecordWriter(path) as record:
            record.write("explain", seed=0)
    monkeypatch.setattr("flashperf.explain.replay", lambda path: found[path])
    return paths


def test_two_runs_are_compared_first_and_both_are_there(replayed: list[Path], capsys: Any) -> None:
    assert cli.main(["report", str(replayed[0]), str(replayed[1].parent), "-o", "out/page.html"]) == 0
    assert capsys.readouterr().out == "wrote out/page.html\n"
    page = Path("out/page.html").read_text()
    places = [
        page.index(f'id="{anchor}"') for anchor in ("comparison", "metrics-1", "raw-1", "metrics-2", "raw-2")
    ]
    assert places == sorted(places)
    assert 'href="#attribution-2">2: attribution' in page
    ids = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_one_run_is_the_page_that_explain_writes(replayed: list[Path]) -> None:
    from flashperf.report.html import html_report

    lines = replayed[0].read_text().splitlines(keepends=True)
    assert report_page(replayed[:1]) == html_report(samples.paradox(), lines)


def test_other_kinds_of_records_bring_their_own_sections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(run_sections.MAKERS, "poem", f"{__name__}:poems")
    with RecordWriter(tmp_path / "poem.jsonl") as record:
        record.write("poem", text="so much depends")
    page = report_page([tmp_path / "poem.jsonl"])
    assert '<h1 id="verdict">Poems</h1>' in page


def poems(records: Any) -> list[Any]:
    from flashperf.report.html import Section

    assert next(records.of("poem"))["text"] == "so much depends"
    return [Section("poems", "Poems", "raw.html.j2", {"downloads": []})]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{}\n", "not a record of flashperf"),
        (json.dumps({"kind": "header", "program": "flashperf", "schema": 999}), "schema 999"),
        (
            json.dumps({"kind": "header", "program": "flashperf", "schema": 1}) + "\n" + '{"kind": "x"}\n',
            "holds nothing that a report shows",
        ),
    ],
)
def test_what_is_no_record_is_said_in_a_line(content: str, said: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text(content)
    assert cli.main(["report", str(tmp_path / "file")]) == 2
    assert said in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_said(replayed: list[Path], capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert cli.main(["report", str(replayed[0]), "-o", str(tmp_path / "taken" / "page.html")]) == 2
    assert "can't write" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


RESULTS = Path(__file__).parent.parent / "results" / "xeon-amx"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("roofline.jsonl", "tiling: measured kernels under their roofs"),
        ("crossover-precision.jsonl", "in code: variant ="),
        ("cases.jsonl", "padded-batch"),
        ("claims.jsonl", "In the document:"),
    ],
)
def test_every_kind_of_committed_record_has_its_section(name: str, said: str) -> None:
    if not (RESULTS / name).exists():
        pytest.skip(f"no {name} is committed")
    page = report_page([RESULTS / name])
    assert said in page
    ids = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_two_records_of_a_kind_have_sections_that_are_told_apart() -> None:
    page = report_page([RESULTS / "cases.jsonl", RESULTS / "cases-examples.jsonl"])
    ids = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert {"cases", "cases-2"} <= set(ids)
    assert 'href="#cases-2">Cases 2</a>' in page
    assert "no hardware path" in page


def test_the_navigation_says_what_is_there_in_words_and_leaves_out_parts_of_a_scenario() -> None:
    page = report_page([RESULTS / "scenario-warmup.jsonl", RESULTS / "crossover-precision.jsonl"])
    listed = page.partition("<nav")[2].partition("</nav>")[0]
    assert ">Scenario warmup</a>" in listed
    assert ">Crossover precision</a>" in listed
    assert 'id="scenario-warmup-table"' in page
    assert "scenario-warmup-table" not in listed
