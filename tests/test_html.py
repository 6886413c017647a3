"""The page: complete in itself, escaped, well formed, readable by everybody, small and quick."""

from __future__ import annotations

import base64
import csv
import dataclasses
import gzip
import hashlib
import io
import json
import re
import time
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import samples

from flashperf.errors import UserError
from flashperf.report import headline, html, to_json, write_report
from flashperf.report.html import Section, html_report, render_page

RECORD = [json.dumps({"kind": "group", "seconds": [0.1, 0.2], "n": n}) for n in range(100)]
VOID = {"meta", "link", "br", "hr", "img", "input", "col", "wbr"}
CSS = (Path(html.TEMPLATES) / "report.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a page is made of; fails on a tag that is closed but not open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title", "desc"):
            self.texts.append(data)

    def named(self, *names: str) -> list[tuple[str, dict[str, str | None]]]:
        return [(tag, attributes) for tag, attributes in self.tags if tag in names]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@cache
def source(name: str) -> str:
    return html_report(samples.ALL[name](), RECORD)


@cache
def page(name: str) -> Page:
    return Page(source(name))


@pytest.mark.parametrize("name", samples.ALL)
def test_nothing_is_loaded(name: str) -> None:
    for tag, attributes in page(name).tags:
        assert tag not in ("iframe", "object", "embed", "link", "img"), tag
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (tag, attribute)
            if attribute in ("src", "href", "xlink:href", "action", "data"):
                assert (value or "").startswith(("#", "data:")), (tag, attribute, (value or "")[:60])
    assert not re.search(r"@import|url\((?!#)", source(name))


@pytest.mark.parametrize("name", samples.ALL)
def test_the_only_script_is_the_page_s_own(name: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", source(name), re.DOTALL)
    assert scripts == [(Path(html.TEMPLATES) / "report.js").read_text(encoding="utf-8")]
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in source(name)
    assert not re.search(r"fetch|XMLHttpRequest|import\s*\(|eval|innerHTML", scripts[0])


@pytest.mark.parametrize("name", samples.ALL)
def test_ids_are_unique_and_every_reference_has_its_target(name: str) -> None:
    ids = [attributes["id"] for _, attributes in page(name).tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    wanted = {f"{a.get('aria-labelledby')}" for _, a in page(name).tags if a.get("aria-labelledby")}
    for _, attributes in page(name).tags:
        reference = attributes.get("xlink:href") or attributes.get("href") or ""
        if reference.startswith("#"):
            wanted.add(reference[1:])
    wanted |= set(re.findall(r"url\(#([^)]+)\)", source(name)))
    assert wanted <= set(ids)


@pytest.mark.parametrize("name", samples.ALL)
def test_headings_are_in_order_under_one_h1(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in page(name).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", samples.ALL)
def test_tables_and_pictures_can_be_read_aloud(name: str) -> None:
    for _, attributes in page(name).named("th"):
        assert attributes.get("scope") in ("row", "col")
    for _, attributes in page(name).named("svg"):
        assert attributes.get("role") == "img" or attributes.get("aria-hidden") == "true"
    pictures = re.findall(r'<svg\b[^>]*role="img"[^>]*>\s*<title>([^<]+)</title>', source(name))
    assert len(pictures) == len([1 for _, a in page(name).named("svg") if a.get("role") == "img"])
    assert 'lang="en"' in source(name)


def test_names_from_outside_are_text_and_nothing_else() -> None:
    found = page("hostile")
    assert samples.HOSTILE in found.text
    assert "[red]a & b[/red]" in found.text
    assert "{{ 7 * 7 }}" in found.text
    assert "mod:<b>f</b>" in found.text
    assert "</style><b>note</b>" in found.text
    assert not found.named("b", "i")
    assert "\x1b" not in source("hostile")


def test_the_verdict_comes_first_and_the_parts_follow() -> None:
    text = page("paradox").text.partition("Raw ")[2]  # after the navigation
    order = [headline(samples.paradox()), "The two largest causes are tiling", "Switch tiling back first"]
    order += ["Standard against Flash", "From Standard to Flash, step by step", "What made the difference"]
    order += ["Interactions", "Predicted against measured", "Machine, noise and notes", "Raw numbers"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    for said in (
        "95 % interval 2.16–2.25",
        "RAPL",
        "inactive",
        "every_n sync",
        "Sum of |log unexplained|: 0.17",
    ):
        assert said in text


def test_parts_that_were_not_measured_are_left_out() -> None:
    text = page("single_switch").text
    assert "Predicted against measured" not in text
    assert "Interaction" not in text
    assert "Standard against Flash" not in text


def test_a_noisy_or_partial_result_warns_under_the_verdict() -> None:
    assert "Mind the noise" in page("nothing").text
    assert "load 3.4 on 2 cores" in page("nothing").text
    assert "Mind the noise" in page("partial").text
    assert "no interval yet · 12 runs by 1 process · busy machine" in page("partial").text
    assert "Mind the noise" not in page("paradox").text


def test_the_interaction_matrix_has_each_pair_once() -> None:
    cells = re.findall(r'<td class="(more|less|tried|none)"', source("paradox"))
    assert len(cells) == 8 * 7 // 2
    assert cells.count("more") == 1
    assert cells.count("less") == 1
    assert cells.count("tried") == 1
    assert "matrix" not in source("partial").partition("</style>")[2]


def test_raw_samples_and_the_summary_are_in_the_page() -> None:
    links = {a["download"]: a["href"] or "" for _, a in page("paradox").named("a") if a.get("download")}
    packed = base64.b64decode(links["flashperf-record.jsonl.gz"].partition("base64,")[2])
    assert gzip.decompress(packed).decode().splitlines() == RECORD
    table = base64.b64decode(links["flashperf-attribution.csv"].partition("base64,")[2]).decode()
    rows = {row["switch"]: row for row in csv.DictReader(io.StringIO(table))}
    assert float(rows["total"]["share"]) == samples.paradox().attribution.total.value
    assert len(rows) == len(samples.paradox().attribution.shares) + 1
    summary = base64.b64decode(links["flashperf-summary.json"].partition("base64,")[2])
    assert json.loads(summary) == to_json(samples.paradox())


def test_a_record_that_is_too_large_is_named_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_EMBEDDED_BYTES", 10)
    found = Page(html_report(samples.faster(), RECORD))
    assert not [1 for _, a in found.named("a") if a.get("download")]
    assert "too large to carry here" in found.text


def test_the_same_explanation_gives_the_same_page() -> None:
    assert html_report(samples.paradox(), RECORD) == source("paradox")


def test_a_large_run_stays_under_5_mb_and_2_s_of_work() -> None:
    shares = samples.paradox().attribution.shares[0]
    many = tuple(dataclasses.replace(shares, switch=f"switch_{n}") for n in range(18))
    found = dataclasses.replace(samples.paradox().attribution, shares=many, interactions=())
    lines = [f'{{"kind": "group", "seconds": [{n * 7919 % 10007 / 1e6}]}}' for n in range(20_000)]
    began = time.process_time()
    text = html_report(dataclasses.replace(samples.paradox(), attribution=found), lines)
    assert time.process_time() - began < 2
    assert len(text.encode()) < 5_000_000


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


LIGHT = colours(CSS[: CSS.index("@media")])
DARK = LIGHT | colours(CSS[CSS.index("dark) {") : CSS.index("* { box-sizing")])
PRINT = LIGHT | colours(CSS[CSS.index("@media print") :])


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT], ids=["light", "dark", "print"])
def test_text_and_marks_have_enough_contrast(theme: dict[str, str]) -> None:
    for role in ("ink", "muted", "slows-text", "helps-text", "link", "predicted"):
        assert contrast(theme[role], theme["paper"]) >= 4.5, role
    assert contrast(theme["muted"], theme["band"]) >= 4.5
    assert contrast(theme["ink"], theme["warn-paper"]) >= 4.5
    for role in ("slows", "helps", "unclear", "total"):
        assert contrast(theme[role], theme["paper"]) >= 3, role


@pytest.mark.parametrize("name", samples.ALL)
def test_every_colour_that_is_used_is_defined(name: str) -> None:
    assert set(re.findall(r"var\(--([\w-]+)\)", source(name))) <= set(LIGHT) | {"sans"}


def test_another_section_is_one_more_entry(tmp_path: Path) -> None:
    section = Section("extra", "Extra & more", "raw.html.j2", {"downloads": []})
    verdict = {"subject": "s", "ratio": "×1", "basis": [], "sentences": [], "warning": ""}
    assert "Extra & more" in Page(render_page("Title", verdict, [section])).text


def test_write_report_writes_page_and_pictures(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text("\n".join(RECORD) + "\n")
    paths = write_report(samples.paradox(), tmp_path / "new" / "folder", record)
    assert [path.name for path in paths] == ["report.html", "waterfall.svg", "waterfall.png"]
    assert paths[0].read_text(encoding="utf-8") == source("paradox")


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't make the folder"):
        write_report(samples.paradox(), tmp_path / "file" / "out")


def test_a_single_switch_has_no_alone_and_on_top() -> None:
    text = html_report(samples.single_switch())
    assert "Alone" not in text
    assert "On top" not in text
    assert "Alone" in html_report(samples.paradox())
