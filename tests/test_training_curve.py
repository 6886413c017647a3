"""The picture of the training curve: repeatable, and drawn from the committed figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashperf.pipeline.weights import small_weights_path
from flashperf.plots import training_curve

DATA = small_weights_path().parent
CURVE = [(200, 3.0, 3.1), (400, 2.0, 2.2)]
PICTURE = Path(__file__).parents[1] / training_curve.PICTURE
PAGE = PICTURE.parents[1] / "model.md"


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path):
    for name in ("first.svg", "second.svg"):
        training_curve.draw(CURVE, 2.4, tmp_path / name)
    first = (tmp_path / "first.svg").read_bytes()
    assert first == (tmp_path / "second.svg").read_bytes()
    assert b"order-5 byte counts (2.40)" in first
    assert b"held-out text (2.20 at the end)" in first


def test_other_columns_are_refused(tmp_path: Path):
    (tmp_path / "curve.csv").write_text("step,loss\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="loss"):
        training_curve.read_curve(tmp_path / "curve.csv")


def test_an_empty_curve_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="at least one row"):
        training_curve.draw([], 2.4, tmp_path / "curve.svg")


def test_the_committed_curve_is_the_cards(tmp_path: Path):
    card = json.loads((DATA / "model_card.json").read_text(encoding="utf-8"))
    step, _, heldout_bpb = training_curve.read_curve(DATA / "training_curve.csv")[-1]
    assert step == card["recipe"]["steps"]
    assert heldout_bpb == pytest.approx(card["heldout_bpb_256"], abs=0.005)  # the card's weights are in bf16


@pytest.mark.skipif(not PICTURE.exists(), reason="the documentation isn't there: an installed package")
def test_the_committed_picture_shows_the_committed_figures(tmp_path: Path):
    training_curve.main(["--data", str(DATA), "--out", str(tmp_path / "curve.svg")])
    labels = [
        line for line in (tmp_path / "curve.svg").read_text(encoding="utf-8").splitlines() if "<text" in line
    ]
    committed = PICTURE.read_text(encoding="utf-8")
    assert labels
    assert [line for line in committed.splitlines() if "<text" in line] == labels


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation isn't there: an installed package")
def test_the_page_states_the_cards_figures():
    card = json.loads((DATA / "model_card.json").read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for window in (256, 1024):
        bpb, accuracy = card[f"heldout_bpb_{window}"], 100 * card[f"heldout_accuracy_{window}"]
        assert f"| windows of {window} bytes | {bpb:.3f} | {accuracy:.1f} % |" in page
    assert f"(Witten-Bell) | {card['order5_bpb']:.3f} |" in page
    for count in (card["model"]["parameters"], card["training_bytes"], card["heldout_bytes"]):
        assert f"{count:,}" in page
