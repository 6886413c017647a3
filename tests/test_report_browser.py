"""The page in a real browser: it renders, sorts, explains, prints, loads nothing, and reads without a script."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import samples

from flashperf.report.html import html_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(html_report(samples.paradox(), ['{"kind": "group"}\n']), encoding="utf-8")
    return page


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    """The page, opened; fails on a console message or a request that leaves it."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    opened = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(file.as_uri())
    yield opened
    context.close()
    assert said == []
    assert asked == [file.as_uri()]


def column(page: Any, anchor: str, n: int) -> list[str]:
    return page.locator(f"#{anchor} tbody tr").evaluate_all(
        f"rows => rows.map(row => (row.cells[{n}] || row.cells[1]).innerText.trim())"
    )


def numbers(texts: list[str]) -> list[float]:
    found = [re.search(r"-?\d+(?:\.\d+)?", text) for text in texts]
    return [float(match.group()) for match in found if match]


def test_it_renders_with_every_section_in_sight(page: Any) -> None:
    assert "times as long as Standard" in page.title()
    for anchor in ("metrics", "waterfall", "attribution", "interactions", "predicted", "machine", "raw"):
        box = page.locator(f"#{anchor}").bounding_box()
        assert box["height"] > 40, anchor
        assert box["width"] > 600, anchor
    scrolls = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not scrolls


def test_a_click_on_a_head_sorts_its_column_both_ways(page: Any) -> None:
    head = page.locator("#attribution th", has_text="Alone").first
    for order in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        rows = column(page, "attribution", 3)
        active = numbers([text for text in rows if "inactive" not in text])
        assert active == sorted(active, reverse=order == "descending")
        assert "inactive" in page.locator("#attribution tbody tr").last.inner_text()


def test_the_keyboard_sorts_and_reads_tooltips(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#attribution th button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#attribution th").first.get_attribute("aria-sort") == "ascending"
    page.locator("#interactions td.more").first.focus()
    assert "together / product of own effects" in page.locator(".tip").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()


def test_everything_is_there_with_javascript_off(browser: Any, file: Path, page: Any) -> None:
    context = browser.new_context(viewport={"width": 1100, "height": 900}, java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file.as_uri())
    assert " ".join(plain.locator("main").inner_text().split()) == " ".join(
        page.locator("main").inner_text().split()
    )
    assert plain.locator("button").count() == 0
    context.close()


@pytest.mark.parametrize("width", [360, 1600])
def test_no_width_makes_the_page_scroll_sideways(browser: Any, file: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    narrow = context.new_page()
    narrow.goto(file.as_uri())
    assert narrow.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_it_prints_on_a_few_sheets_without_navigation(page: Any, tmp_path: Path) -> None:
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    pdf = page.pdf(format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", pdf)) <= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["paradox", "hostile", "partial"])
def test_axe_finds_nothing_to_mend(browser: Any, tmp_path: Path, name: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    file = tmp_path / "report.html"
    file.write_text(html_report(samples.ALL[name]()), encoding="utf-8")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    opened = context.new_page()
    opened.goto(file.as_uri())
    found = axe.Axe().run(opened)
    context.close()
    assert found.violations_count == 0, found.generate_report()


def test_a_script_in_a_name_cannot_run(browser: Any, tmp_path: Path) -> None:
    text = html_report(samples.paradox()).replace("</main>", "<script>window.ran = 1</script></main>")
    (tmp_path / "evil.html").write_text(text, encoding="utf-8")
    context = browser.new_context()
    opened = context.new_page()
    opened.goto((tmp_path / "evil.html").as_uri())
    assert opened.evaluate("window.ran") is None  # the page's policy allows its own script only
    context.close()
