"""Puts what commands print into README.md and docs/*.md, between markers that name the command.

    <!-- begin: flashperf mechanisms --markdown -->
    <!-- end -->

Only commands that measure nothing may stand there: they read committed records or the code. What prints Markdown
(``--markdown``, and tools/) is put in as it is, words (``--quiet``) as a quotation, everything else as a block of text.

python tools/update_docs.py            # rewrites the blocks
python tools/update_docs.py --check    # exit code 1, and which, if one is not what its command prints
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^(<!-- begin: ((?:flashperf|python) .+?) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE
)


@functools.cache
def printed(command: str) -> str:
    """What a command prints, at 80 columns without colour. Ends the program if it fails."""
    from flashperf import cli

    program, *arguments = shlex.split(command)
    if program == "python":
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT), contextlib.redirect_stdout(out):
        os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
        writes = ["--out", folder] if arguments[0] == "explain" else []
        code = cli.main([*arguments, *writes])
        if code not in (0, 3):  # 3: measured, but too noisy
            raise SystemExit(f"{command} ended with exit code {code}")
        text = out.getvalue()
        lines = [line.rstrip() for line in text.splitlines() if folder not in line]
    return "\n".join(line for line in lines if not line.startswith("record ")).strip()


def block(command: str) -> str:
    """A command's output in the form that suits it."""
    text = printed(command)
    if "--markdown" in command or command.startswith("python tools"):
        return f"\n{text}\n"
    if "--quiet" in command:
        return "\n".join(f"> {line}" for line in text.splitlines())
    return f"```\n{text}\n```"


def updated(text: str) -> str:
    """A page with its blocks filled in."""
    return BLOCK.sub(lambda match: f"{match[1]}{block(match[2])}\n{match[3]}", text)


def main() -> None:
    """Rewrite or check."""
    stale = []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if before != after:
            stale.append(page.relative_to(ROOT))
            if "--check" not in sys.argv[1:]:
                page.write_text(after, encoding="utf-8")
    if "--check" in sys.argv[1:] and stale:
        sys.exit(f"not what their commands print: {', '.join(map(str, stale))}; python tools/update_docs.py")


if __name__ == "__main__":
    main()
