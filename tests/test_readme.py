"""The README: its tables are those of the committed record, its pictures are redrawn byte for byte, its code runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_tables_are_what_the_command_prints() -> None:
    command = [sys.executable, str(ROOT / "tools" / "update_docs.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_pictures_are_redrawn_byte_for_byte(tmp_path: Path) -> None:
    from flashperf.plots.__main__ import PICTURES, pictures

    for drawn in pictures(tmp_path):
        if drawn.suffix == ".svg":
            assert drawn.read_bytes() == (PICTURES / drawn.name).read_bytes(), drawn.name


def test_links_and_files_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        anchors = {
            re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in re.findall(r"^#+ (.+)$", text, re.M)
        }
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            if "://" not in target:
                assert not file or (page.parent / file).exists(), f"{page.name} links to {file}"
                assert file or anchor in anchors, f"{page.name} has no heading {anchor}"


@pytest.mark.slow
def test_the_three_line_compare_prints_a_verdict() -> None:
    code = re.search(r"```python\n(import flashperf.*?)```", README, re.DOTALL)
    assert code is not None
    result = subprocess.run(
        [sys.executable, "-c", code.group(1)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"faster|slower|equivalent|can't tell", result.stdout)
