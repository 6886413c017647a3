"""The scripts in bench/ that take a mechanism apart: every row is there, and counts are right. No time is judged."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from flashperf.mechanisms.graph import fit_line

BENCH = Path(__file__).parents[1] / "bench"


def script(name: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> ModuleType:
    """A script as a module, with its arguments in place and few trials."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "argv", [name, *options])
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rounds = importlib.import_module("rounds")
    monkeypatch.setattr(rounds, "LEAST_S", 0.0)
    monkeypatch.setattr(rounds, "TRIALS", 1)
    return module


def test_dispatch_cost_prints_a_line_per_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("dispatch_cost", monkeypatch, "--elements", "8", "--repeats", "2")
    monkeypatch.setattr(module, "torch_chains", lambda elements: [])
    module.main()
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[2:5]] == ["planned", "issued", "eager"]
    assert "torch: not installed" in printed


def test_dispatch_cost_fits_every_round_of_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("dispatch_cost", monkeypatch)
    slopes = np.array([[1e-6, 2e-6], [3e-6, 4e-6]])  # [rounds, variants]
    seconds = 5e-6 + slopes[:, :, None] * np.array(module.LENGTHS)
    monkeypatch.setattr(module, "in_turns", lambda calls, rounds: seconds.reshape(rounds, -1))
    found = module.fits({"a": [None] * len(module.LENGTHS), "b": [None] * len(module.LENGTHS)}, 2)
    assert [fit.b_s for fit in found["a"]] == pytest.approx([1e-6, 3e-6])
    assert [fit.b_s for fit in found["b"]] == pytest.approx([2e-6, 4e-6])
    assert found["a"][0].a_s == pytest.approx(fit_line(module.LENGTHS, seconds[0, 0]).a_s)


def test_transfer_rates_counts_bytes_and_copies_and_gives_no_rate_to_what_may_be_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--rows", "2", "--k", "256", "--n", "128", "--layers", "3", "--repeats", "2")
    module = script("transfer_rates", monkeypatch, *sizes)
    module.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(module.WAYS))]
    moved = f"{3 * 4 * 256 * 128 / 1e6:.1f}"
    assert [row[12:28].split() for row in rows] == [["0.0", "0"], [moved, "3"], [moved, "6"], [moved, "3"]]
    assert module.effective_rate(8_000_000_000, np.array([1.0, 1.0])) == "8.0 [8.0, 8.0]"
    assert module.effective_rate(10**9, np.array([-1.0, 1.0])).startswith("above ")
    assert module.effective_rate(10**9, np.array([-1.0, -1.0])) == "nothing added"


def test_real_tokens_shows_every_batch_and_what_is_multiplied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--longest", "8", "--k", "4", "--n", "4", "--repeats", "2")
    module = script("real_tokens", monkeypatch, *options)
    module.main()
    rows = [line.split()[:5] for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert len(rows) == 4 * len(module.BATCHES)
    assert ["64", "padded", "256", "512", "50%"] in rows
    assert ["64", "packed", "256", "256", "100%"] in rows
    assert ["1", "bucketed", "8", "8", "100%"] in rows


def test_every_call_is_timed_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    script("real_tokens", monkeypatch)
    rounds = sys.modules["rounds"]
    ran: list[str] = []
    monkeypatch.setattr(rounds, "calibrate", lambda call, least_s: (2, 0.0))
    calls = [lambda: ran.append("a"), lambda: ran.append("b")]
    assert rounds.in_turns(calls, rounds=5).shape == (5, 2)
    assert ran.count("a") == ran.count("b") == 5 * (1 + 2), "an untimed call and a sample of two"
    assert rounds.with_interval(np.array([1.0, 1.0]), 1e3) == "1000 [1000, 1000]"
