"""What the terminal shows: letter for letter against tests/golden, within 80 columns, plain in a pipe."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from pathlib import Path

import pytest
import samples
from rich.console import Console

from flashperf.records import Advice, Interval, Metric
from flashperf.report import (
    attribution_table,
    console_for,
    headline,
    noise_reason,
    print_explanation,
    tables,
    to_json,
    words,
)
from flashperf.report import numbers as n
from flashperf.report.words import interaction_summary

GOLDEN = Path(__file__).parent / "golden"


def shown(name: str, width: int = 80) -> str:
    """A sample as a pipe would get it."""
    stream = io.StringIO()
    print_explanation(samples.ALL[name](), Console(file=stream, width=width, markup=False, highlight=False))
    return stream.getvalue()


@pytest.mark.parametrize("name", samples.ALL)
def test_the_text_is_the_golden_one(name: str) -> None:
    path, text = GOLDEN / f"{name}.txt", shown(name)
    if os.environ.get("FLASHPERF_UPDATE_GOLDENS") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"see {GOLDEN / 'README.md'}"


def test_every_golden_has_a_sample() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(samples.ALL)


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_over_80_columns_or_ends_in_blanks(name: str, width: int) -> None:
    for line in shown(name, width).splitlines():
        assert len(line) <= 80, line
        assert line == line.rstrip(), repr(line)


@pytest.mark.parametrize("name", samples.ALL)
def test_a_pipe_gets_no_escape_sequences(name: str) -> None:
    assert "\x1b" not in shown(name)


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        stream = io.StringIO()
        print_explanation(
            samples.paradox(), Console(file=stream, width=80, force_terminal=True, color_system="standard")
        )
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31m" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in drawn()


def test_a_stream_without_unicode_gets_ascii_that_still_lines_up() -> None:
    raw = io.BytesIO()
    console = console_for(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    print_explanation(samples.paradox(), console)
    text = raw.getvalue().decode("ascii")
    rows = [line for line in text.splitlines() if line.startswith((" tiling ", " launch "))]
    assert "blocked > bad_tile" in rows[0]
    assert rows[0].index("1.44 [") == rows[1].index("1.12 [")


def test_names_are_never_markup_or_control_characters() -> None:
    text = shown("hostile")
    assert "[red]a & b[/red]" in text
    assert "\x1b" not in text
    assert "line\N{REPLACEMENT CHARACTER}break" in text


def test_switches_are_sorted_by_share_and_inactive_ones_say_so() -> None:
    table = attribution_table(samples.paradox())
    names = [str(cell) for cell in table.columns[0].cells]
    assert names[0] == "tiling"
    assert names[-3:] == ["quantization", "span", "total"]
    assert [str(cell) for cell in table.columns[4].cells][-2] == "inactive"


def test_words_name_the_two_largest_causes_and_what_helps() -> None:
    first, causes, interaction, advice = words(samples.paradox())
    assert first == "Flash takes 2.21 times as long as Standard (95 % interval 2.16 to 2.25)."
    assert causes.index("tiling (blocked → bad_tile), ×1.44 or 46 %") < causes.index(
        "precision (f32 → mixed)"
    )
    assert causes.endswith("quantization (×0.93) helps.")
    assert interaction.startswith("tiling and launch interact: together they cost more")
    assert advice.startswith("Switch tiling back first (bad_tile → blocked): that mixture was run")
    assert advice.endswith("and still 1.56 times Standard's.")


def test_words_say_so_when_flash_is_faster() -> None:
    first, causes, *_ = words(samples.faster())
    assert first.startswith("Flash is faster: it takes 0.604 of Standard's time")
    assert "gains are quantization" in causes
    assert causes.endswith("preprocessing (×1.07) holds it back.")
    assert headline(samples.faster()) == "Flash is 1.66 times as fast as Standard"


@pytest.mark.parametrize("name", ["nothing", "partial"])
def test_words_cannot_tell_where_the_interval_includes_one(name: str) -> None:
    text = " ".join(words(samples.ALL[name]()))
    assert "Can't tell" in text
    assert "No switch's share can be told from 1" in text
    assert "times as long" not in text
    assert headline(samples.ALL[name]()).startswith("Can't tell")


def test_words_of_a_partial_result_begin_with_what_it_rests_on() -> None:
    assert words(samples.partial())[0] == "Partial result (interrupted): 12 runs by 1 process."


def test_one_switch_has_no_interactions() -> None:
    assert not any("nteract" in sentence for sentence in words(samples.single_switch()))
    assert "Interactions" not in shown("single_switch")


@pytest.mark.parametrize(
    ("gain", "left", "said"),
    [
        (samples.ratio(1.2), samples.ratio(1.5), "does not pay"),
        (samples.ratio(1.0), samples.ratio(1.5), "can't be told from Flash"),
        (samples.ratio(0.8), samples.ratio(1.0), "can't be told from Standard"),
        (samples.ratio(0.8), samples.ratio(0.7), "and 0.70 of Standard's."),
    ],
)
def test_advice_says_what_was_measured(gain: Interval, left: Interval, said: str) -> None:
    advice = Advice("tiling", "bad_tile", "blocked", gain, left)
    assert said in words(dataclasses.replace(samples.paradox(), advice=advice))[-1]


def test_an_interaction_that_was_not_confirmed_is_none_found() -> None:
    assert "Interactions between switches: none found above 9 %." in words(samples.nothing())


def test_the_noise_reason_gives_width_and_cause() -> None:
    reason = noise_reason(samples.nothing())
    assert "±0.060 in log units" in reason
    assert "load 3.4 on 2 cores" in reason


def test_the_noise_reason_of_a_single_process_claims_no_width() -> None:
    assert noise_reason(samples.partial()).startswith(
        "some shares have no interval yet; the machine was busy"
    )


@pytest.mark.parametrize(
    ("ratio", "better", "said"),
    [
        (samples.ratio(1.2), "lower", "worse"),
        (samples.ratio(1.2), "higher", "better"),
        (samples.ratio(0.8), "lower", "better"),
        (samples.ratio(0.8), "higher", "worse"),
        (samples.ratio(1.2), "", ""),
        (samples.ratio(1.001), "lower", "can't tell"),
        (samples.exactly(1.001), "lower", "same"),
        (samples.exactly(1.003), "lower", "worse"),
        (None, "lower", ""),
    ],
)
def test_better_and_worse(ratio: Interval | None, better: str, said: str) -> None:
    one = samples.amount(1.0)
    assert tables.better(Metric("m", "s", better, one, one, ratio))[0] == said


def test_json_is_strict_and_complete() -> None:
    for make in samples.ALL.values():
        text = json.dumps(to_json(make()), allow_nan=False)
        found = json.loads(text)
        assert found["schema_version"] == 1
        assert found["words"] == words(make())
    shares = to_json(samples.paradox())["attribution"]["shares"]
    assert shares[0]["share"]["value"] == 1.214
    assert to_json(samples.partial())["attribution"]["total"]["high"] is None


def test_shown_shares_multiply_to_the_shown_total() -> None:
    found = samples.paradox().attribution
    assert math.prod(share.share.value for share in found.shares) == pytest.approx(found.total.value)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1.21, 1.18, 1.24), "1.21 [1.18 1.24]"),
        (Interval(14.44, 13.9, 15.0), "14.4 [13.9 15.0]"),
        (Interval(0.0321, 0.0300, 0.0340), "0.032 [0.030 0.034]"),
        (Interval(1.3, 0.0, math.inf), "1.30 [no interval]"),
        (Interval(math.nan, 0.0, math.inf), "not measured"),
        (Interval(0.899, 0.899, 0.899), "0.899"),
    ],
)
def test_bracketed(interval: Interval, text: str) -> None:
    assert n.bracketed(interval) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1.21, 1.18, 1.25), "1.21 ±.04"),
        (Interval(14.4, 13.9, 14.9), "14.4 ±.5"),
        (Interval(2.5, 1.0, 4.0), "2.50 ±1.50"),
        (Interval(1.3, 0.0, math.inf), "1.30 ±?"),
        (Interval(math.nan, 0.0, math.inf), "-"),
    ],
)
def test_spread_is_the_longer_side(interval: Interval, text: str) -> None:
    assert n.spread(interval) == text


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", 0.312, "312 ms"),
        ("s", 4e-6, "4.00 µs"),
        ("s", 14.4, "14.4 s"),
        ("bytes", 42.5e9, "42.5 GB"),
        ("%", 48, "48.0 %"),
    ],
)
def test_quantities_have_a_suitable_unit(unit: str, value: float, expected: str) -> None:
    interval = Interval(value, value * 0.99, value * 1.01)
    divisor, shown_unit = n.scale(unit, [value])
    text = n.quantity(interval, divisor, n.places_for([interval], divisor))
    assert f"{text.split(' ')[0]} {shown_unit}" == expected


@pytest.mark.parametrize(("busy_reason", "said"), [
    ("load 1.76 on 2 cores", "busy: load 1.76 on 2 cores, CPU pressure 0.8 %"),
    ("tasks waited for a core in 12 % of the last 10 s",
     "busy: tasks waited for a core in 12 % of the last 10 s, load 1.76"),
    ("", "quiet: load 1.76, CPU pressure 0.8 %"),
])  # fmt: skip
def test_the_machine_line_gives_each_figure_once(busy_reason: str, said: str) -> None:
    machine = dataclasses.replace(
        samples.paradox().environment,
        load_1min=1.76,
        pressure_some_avg10=0.8,
        busy=bool(busy_reason),
        busy_reason=busy_reason,
    )
    assert dict(tables.environment_rows(machine))["machine"] == said


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_keeps_the_names(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False)
    for table in (tables.metrics_table(samples.paradox().metrics), attribution_table(samples.paradox())):
        console.print(table)
    text = stream.getvalue()
    for start in ("task", "throug", "energy", "tiling", "quanti"):
        assert any(line.startswith(start) for line in text.splitlines()), text
    assert max(map(len, text.splitlines())) <= width


def test_variants_without_an_active_switch_are_the_same_program() -> None:
    share = samples.inactive("span", "full", "full")
    found = dataclasses.replace(samples.nothing().attribution, shares=(share,), total=samples.exactly(1.0))
    same = dataclasses.replace(samples.nothing(), attribution=found, advice=None)
    (sentence,) = words(same)
    assert "the same program" in sentence
    assert "nothing was measured" in sentence
    assert "same program" in headline(same)


def test_a_single_switch_has_no_alone_and_on_top() -> None:
    found = samples.faster().attribution
    one = dataclasses.replace(
        samples.faster(), attribution=dataclasses.replace(found, shares=found.shares[:1])
    )
    stream = io.StringIO()
    print_explanation(one, Console(file=stream, width=80))
    text = stream.getvalue().lower()
    assert "predicted" in text
    assert "alone" not in text
    assert "on top" not in text
    assert "interacts" not in text
    assert "alone" not in shown("single_switch").lower()


def test_both_predictions_are_printed() -> None:
    share = dataclasses.replace(
        samples.paradox().attribution.shares[0],
        predicted=samples.ratio(1.2),
        predicted_cold=samples.ratio(2.01),
    )
    table = tables.details_table(dataclasses.replace(samples.paradox().attribution, shares=(share,)))
    assert str(next(iter(table.columns[2].cells))) == "1.20 – 2.01"
    assert "warm – evicted caches" in " ".join(shown("paradox").split())


def test_a_run_that_could_find_no_interaction_does_not_say_that_there_is_none() -> None:
    found = dataclasses.replace(samples.paradox().attribution, smallest_detectable_interaction=4.7e4)
    assert interaction_summary(found) == "too few blocks to find one"
