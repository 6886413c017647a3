"""The waterfall: adds up, says everything in words too, and is the same byte for byte when drawn again."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import samples

from flashperf.plots.style import PALETTE, figure, svg_text, themed
from flashperf.plots.waterfall import description, steps, waterfall, waterfall_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", samples.ALL)
def test_drawn_twice_it_is_the_same(name: str, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in waterfall(samples.ALL[name](), tmp_path / "a")]
    again = [path.read_bytes() for path in waterfall(samples.ALL[name](), tmp_path / "b")]
    assert first == again
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.png", "a.svg", "b.png", "b.svg"]


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import samples;"
        "from pathlib import Path; from flashperf.plots.waterfall import waterfall;"
        f"waterfall(samples.faster(), Path({str(tmp_path / 'other')!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for path in waterfall(samples.faster(), tmp_path / "here"):
        other = tmp_path / path.name.replace("here", "other")
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()


def test_svg_is_well_formed_and_has_no_date(tmp_path: Path) -> None:
    for name, make in samples.ALL.items():
        svg = waterfall(make(), tmp_path / name)[0].read_text(encoding="utf-8")
        root = ElementTree.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert (root[0].tag, root[1].tag) == (f"{SVG}title", f"{SVG}desc")
        assert root[1].text == description(make())
        assert "date" not in svg


@pytest.mark.parametrize("name", samples.ALL)
def test_each_step_starts_where_the_last_ended_and_they_meet_the_total(name: str) -> None:
    *switches, total = steps(samples.ALL[name]())
    at = 1.0
    for step in switches:
        assert step.start == pytest.approx(at)
        assert step.end == pytest.approx(step.start * step.factor.value)
        at = step.end
    assert (total.name, total.start) == ("Flash", 1.0)
    assert total.end == pytest.approx(at)


def test_inactive_switches_are_left_out_and_named_below() -> None:
    assert "span" not in [step.name for step in steps(samples.paradox())]
    assert "Left out, as they change nothing that runs here: span." in waterfall_svg(samples.paradox())
    assert "Left out" not in waterfall_svg(samples.faster())


def test_colours_tell_slow_help_and_unclear_apart() -> None:
    colour = {step.name: step.colour for step in steps(samples.paradox())}
    assert colour["tiling"] == PALETTE["slows"]
    assert colour["quantization"] == PALETTE["helps"]
    assert colour["checkpoint"] == PALETTE["unclear"]


def test_labels_give_the_factor_its_interval_and_the_levels() -> None:
    svg = waterfall_svg(samples.paradox())
    for text in ("×1.44", "1.42 to 1.46", "blocked → bad_tile", "×2.21"):
        assert text in svg
    assert "no interval" in waterfall_svg(samples.partial())


def test_names_are_escaped_and_never_mathematics() -> None:
    svg = waterfall_svg(samples.hostile())
    assert "<script" not in svg
    assert re.search(r"<text[^>]*>\$x_1\$", svg)


def test_a_script_that_the_font_lacks_is_no_noise(recwarn: pytest.WarningsRecorder, tmp_path: Path) -> None:
    parts = {("切换", "a", "b"): (1.3, 1.3, 1.3, None)}
    waterfall(samples.explanation(samples.attribution(parts)), tmp_path / "picture")
    assert not recwarn.list


def test_titles_are_escaped() -> None:
    with figure(2, 1) as drawn:
        svg = svg_text(drawn, "a < b & c", r"\1 > d", text_as_paths=True)
    root = ElementTree.fromstring(svg)
    assert (root[0].text, root[1].text) == ("a < b & c", r"\1 > d")


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_values_that_no_axis_can_show_are_left_out(value: float) -> None:
    found = samples.faster().attribution
    shares = list(found.shares)
    shares[0] = dataclasses.replace(shares[0], share=samples.Interval(value, 0.0, math.inf))
    odd = dataclasses.replace(samples.faster(), attribution=dataclasses.replace(found, shares=tuple(shares)))
    assert [step.name for step in steps(odd)] == ["preprocessing", "attention", "Flash"]


@pytest.mark.parametrize("ratio", [1.0005, 1.3, 40.0, 0.02])
def test_any_size_of_effect_gets_ticks(ratio: float) -> None:
    parts = {("a", "x", "y"): (ratio, ratio, ratio, None)}
    svg = waterfall_svg(samples.explanation(samples.attribution(parts)))
    assert svg.count("xtick_") >= 2


def test_in_a_page_colours_are_variables_and_ids_have_a_prefix() -> None:
    svg = themed(waterfall_svg(samples.paradox()), "wf")
    assert svg.startswith("<svg")
    assert not any(colour in svg for colour in PALETTE.values())
    assert 'id="wf-' in svg
    assert "url(#wf-" in svg or "url(" not in svg
    assert "DejaVu" not in svg


def test_in_a_page_names_stay_as_they_are() -> None:
    parts = {("#ffffff", 'id="a"', "url(#b)"): (1.3, 1.3, 1.3, None)}
    svg = themed(waterfall_svg(samples.explanation(samples.attribution(parts))), "wf")
    assert ">#ffffff<" in svg
    assert 'id="a" → url(#b)<' in svg
