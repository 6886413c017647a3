"""One look for all pictures: a colour-blind safe palette, a figure, files that are the same byte for byte.

Matplotlib is imported inside functions only: the command line loads without it.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Role -> colour on a white card. Orange and blue stay apart for all kinds of sight (Okabe and Ito 2008).
PALETTE: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#59626c",
    "rule": "#d4d9de",
    "slows": "#d55e00",
    "helps": "#0072b2",
    "unclear": "#8b949e",
    "total": "#3d4650",
}
PNG_DPI = 200
_SETTINGS: Mapping[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "text.hinting": "none",
    "text.parse_math": False,  # a name with $ in it is a name
    "svg.hashsalt": "flashperf",
    "axes.edgecolor": PALETTE["rule"],
    "text.color": PALETTE["ink"],
    "xtick.color": PALETTE["muted"],
    "ytick.color": PALETTE["ink"],
    "path.simplify": False,
}


@contextmanager
def figure(width_in: float, height_in: float) -> Iterator[Figure]:
    """A figure of a size in inches, under the project's settings; leaves no global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a name in a script that the font lacks
        matplotlib.rcdefaults()
        for setting, value in _SETTINGS.items():
            matplotlib.rcParams[setting] = value  # type: ignore[index]
        drawn = Figure(figsize=(width_in, height_in), facecolor=PALETTE["paper"])
        FigureCanvasAgg(drawn)
        yield drawn


def svg_text(drawn: Figure, title: str, description: str, *, text_as_paths: bool) -> str:
    """The figure as SVG with a title and a description for screen readers; the same text on every call.

    Paths look the same everywhere and suit a file; text is smaller, can be selected, and suits a page.
    """
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "path" if text_as_paths else "none"}):
        drawn.savefig(stream, format="svg")
    # the metadata holds the date and the version that drew it
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    names = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>"
    return re.sub(r"(<svg\b[^>]*?)>", rf'\g<1> role="img">\n {_literal(names)}', svg, count=1)


def _literal(text: str) -> str:
    """Text that ``re.sub`` inserts as it stands."""
    return text.replace("\\", r"\\")


def save(drawn: Figure, stem: Path, title: str, description: str) -> list[Path]:
    """Write ``stem``.svg and ``stem``.png, byte for byte the same for the same figure; returns both paths."""
    svg, png = stem.with_name(stem.name + ".svg"), stem.with_name(stem.name + ".png")
    svg.write_text(svg_text(drawn, title, description, text_as_paths=True), encoding="utf-8")
    drawn.savefig(png, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return [svg, png]


def themed(svg: str, prefix: str) -> str:
    """An SVG to stand inside a page: palette colours become CSS variables, ids get a prefix, the prolog goes.

    ``--ink`` and the other roles of PALETTE must be defined by the page, for light and for dark.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", body, count=1)
    return re.sub(r"<[^>]+>", lambda tag: _themed_tag(tag.group(), prefix), body)


def _themed_tag(tag: str, prefix: str) -> str:
    """One tag with variables for colours and font, and prefixed ids; names that are drawn as text stay."""
    for role, colour in PALETTE.items():
        tag = tag.replace(colour, f"var(--{role})")
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', tag)
    tag = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", tag)
    return tag.replace("'DejaVu Sans', sans-serif", "var(--sans)")
