"""What stands in for measuring in tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples

Install = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Replaces everything that measures by a sample; returns the list of what it was called with."""
    monkeypatch.chdir(tmp_path)

    def install(name: str) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def measure(*positional: Any, **named: Any) -> Any:
            calls.append({"positional": positional, **named})
            if "out" in named:
                named["out"].mkdir(parents=True)
                (named["out"] / "record.jsonl").write_text('{"kind": "group"}\n')
                named["progress"].phase("measuring", "stub")
            return samples.ALL[name]()

        for function in ("explain_pipeline", "explain_factory", "replay"):
            monkeypatch.setattr(f"flashperf.explain.{function}", measure)
        return calls

    return install
