"""Training on a toy shape and a short text: it learns, repeats from its seed, and writes its three files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashperf.pipeline import reference, text
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.weights import load_weights, read_safetensors

torch = pytest.importorskip("torch", reason="torch is not installed")

from flashperf.pipeline import train  # noqa: E402  (imports torch)
from flashperf.pipeline.torch_model import Model, drop  # noqa: E402

TOY = ModelConfig("toy", layers=1, dim=32, heads=2, ffn=48)
TEXT = b"The quick brown fox jumps over the lazy dog; the dog sleeps on. " * 40
SHORT = train.Stage(12, (32, 64), tokens_per_step=256, rate=0.003, warmup_steps=3)
LONG = train.Stage(4, (128,), tokens_per_step=256, rate=0.001, warmup_steps=2)
RECIPE = train.Recipe(stages=(SHORT,))


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch):
    """A toy model and text, on one thread: sums in a fixed order, and no waiting for a busy core."""
    monkeypatch.setattr(train, "SMALL", TOY)
    monkeypatch.setattr(text, "training_text", lambda: text.TrainingText(TEXT, TEXT.swapcase()))
    monkeypatch.setattr(text, "heldout_bytes", lambda: TEXT[:2060])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(recipe: train.Recipe, out: Path, report_every: int = 200) -> dict[str, np.ndarray]:
    train.train(recipe, out, report_every=report_every)
    return read_safetensors(out / "small.safetensors")


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path):
    first, again, other = (trained(replace(RECIPE, seed=seed), tmp_path) for seed in (1, 1, 2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert not np.array_equal(first["embed"], other["embed"])


def test_nothing_of_a_run_is_left_to_chance_or_to_when_it_reports(tmp_path: Path):
    still = replace(RECIPE, stages=(replace(SHORT, rate=0.0),))  # weights stay as they were initialised
    first, other = (trained(recipe, tmp_path)["embed"] for recipe in (still, replace(still, seed=3)))
    assert not np.array_equal(first, other)
    seldom, often = (trained(RECIPE, tmp_path, report_every) for report_every in (12, 2))
    np.testing.assert_array_equal(seldom["embed"], often["embed"])


def test_a_later_stage_goes_on_from_the_files_of_the_one_before(tmp_path: Path):
    both = replace(RECIPE, stages=(SHORT, LONG))
    whole = trained(both, tmp_path)
    card = json.loads((tmp_path / "model_card.json").read_text(encoding="utf-8"))
    rows = (tmp_path / "training_curve.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["12", "16"]
    assert len(card["wall_s"]) == 2
    parts = tmp_path / "parts"
    parts.mkdir()
    before = trained(RECIPE, parts)
    train.train(both, parts, first_stage=1)
    after = read_safetensors(parts / "small.safetensors")
    np.testing.assert_array_equal(after["embed"], whole["embed"])
    assert not np.array_equal(after["embed"], before["embed"])
    assert (parts / "training_curve.csv").read_text(encoding="utf-8").splitlines() == rows
    with pytest.raises(SystemExit, match="doesn't end at step 12"):
        train.train(both, parts, first_stage=1)


def test_it_learns_and_its_card_is_true(tmp_path: Path):
    train.train(RECIPE, tmp_path, report_every=5)
    rows = (tmp_path / "training_curve.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "5", "10", "12"]
    assert float(rows[-1].split(",")[2]) < float(rows[1].split(",")[2]) < 8.0
    card = json.loads((tmp_path / "model_card.json").read_text(encoding="utf-8"))
    tokens = np.frombuffer(TEXT[:2049], np.uint8)
    logits = reference.forward(
        load_weights(tmp_path / "small.safetensors", TOY), TOY, tokens[:2048].reshape(8, 256)
    )
    expected = reference.bits_per_byte(logits, tokens[1:].reshape(8, 256))
    assert card["heldout_bpb_256"] == pytest.approx(expected, abs=2e-4)
    assert card["recipe"]["stages"][0]["steps"] == 12
    assert card["model"]["parameters"] == TOY.parameters()


def test_batches_are_stretches_of_both_parts_with_their_successors():
    parts = torch.arange(300), torch.arange(1000, 1500)
    for step, window, from_topics in ((2, 32, 3), (3, 64, 2)):
        inputs, targets = train.make_batch(parts, SHORT, step, 0.375, torch.Generator().manual_seed(0))
        assert inputs.shape == targets.shape == (256 // window, window)
        assert (inputs.diff(dim=1) == 1).all()
        assert (targets == inputs + 1).all()
        assert (inputs[:, 0] < 300).sum() == from_topics
        again, _ = train.make_batch(parts, SHORT, step, 0.375, torch.Generator().manual_seed(0))
        assert (inputs == again).all()


def test_the_rate_rises_then_falls():
    rates = [train.rate_at(step, train.Recipe().stages[0]) for step in (1, 100, 200, 3000, 5000)]
    assert rates[0] < rates[1] < rates[2] > rates[3] > rates[4] > 0
    assert rates[2] == pytest.approx(0.003, rel=0.01)


def test_dropout_removes_whole_channels_and_keeps_the_mean():
    torch.manual_seed(0)
    dropped = drop(torch.ones(64, 5, 200), 0.25)
    assert (dropped == dropped[:, :1]).all()
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (dropped[:, 0] == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)


def test_the_torch_model_has_the_names_and_shapes_of_the_config():
    assert {name: tuple(value.shape) for name, value in Model(TOY).state_dict().items()} == TOY.shapes()
