"""Puts the printed tables into README.md: what ``flashperf explain --replay`` prints from the committed record.

python tools/update_readme.py            # rewrites the block between the markers
python tools/update_readme.py --check    # exit code 1 if it is not what the command prints
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RECORD = "results/xeon-amx/explain-single.jsonl"
BEGIN, END = "<!-- begin: flashperf explain --replay {} -->", "<!-- end -->"


def printed() -> str:
    """The tables of the committed record, plain, 80 columns."""
    from rich.console import Console

    from flashperf.explain import replay
    from flashperf.report import print_explanation

    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None, force_terminal=False)
    print_explanation(replay(ROOT / RECORD), console)
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def updated(text: str) -> str:
    """README text with the block filled in."""
    begin = BEGIN.format(RECORD)
    block = f"{begin}\n```\n{printed()}\n```\n{END}"
    pattern = re.escape(begin) + r".*?" + re.escape(END)
    if not re.search(pattern, text, re.DOTALL):
        raise SystemExit(f"README.md has no block {begin}")
    return re.sub(pattern, lambda match: block, text, flags=re.DOTALL)


def main() -> None:
    """Rewrite or check."""
    before = README.read_text()
    after = updated(before)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if before == after else "README.md is not what the command prints: tools/update_readme.py")
    README.write_text(after)


if __name__ == "__main__":
    main()
