"""Puts what ``flashperf explain --replay RECORD [--quiet]`` prints from committed records into README.md.

python tools/update_readme.py            # rewrites the blocks between the markers
python tools/update_readme.py --check    # exit code 1 if one is not what the command prints
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(<!-- begin: flashperf explain --replay (\S+)( --quiet)? -->\n).*?(<!-- end -->)", re.DOTALL
)


def printed(record: str, quiet: bool) -> str:
    """What the command prints from a committed record, plain, 80 columns; ``quiet``: the words only."""
    from rich.console import Console

    from flashperf.explain import replay
    from flashperf.report import print_explanation, words

    explanation = replay(ROOT / record)
    if quiet:
        return "\n".join(f"> {sentence}" for sentence in words(explanation))
    out = io.StringIO()
    print_explanation(explanation, Console(file=out, width=80, color_system=None, force_terminal=False))
    lines = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
    return f"```\n{lines}\n```"


def updated(text: str) -> str:
    """README text with its blocks filled in. Ends the program if there are none."""
    if not BLOCK.search(text):
        raise SystemExit(
            "README.md has no block that begins with <!-- begin: flashperf explain --replay ... -->"
        )
    return BLOCK.sub(lambda m: f"{m[1]}{printed(m[2], bool(m[3]))}\n{m[4]}", text)


def main() -> None:
    """Rewrite or check."""
    before = README.read_text()
    after = updated(before)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if before == after else "README.md is not what the command prints: tools/update_readme.py")
    README.write_text(after)


if __name__ == "__main__":
    main()
