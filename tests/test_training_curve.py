"""The picture of the training curve and the page about the model: repeatable, with the committed figures."""

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


def description(svg: Path) -> str:
    """What a screen reader says of the picture: its figures."""
    return svg.read_text(encoding="utf-8").split("<desc>")[1].split("</desc>")[0]


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path):
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    training_curve.draw(CURVE, 2.4, first)
    training_curve.draw(CURVE, 2.4, second)
    assert first.read_bytes() == second.read_bytes()
    assert description(first) == (
        "Bits per byte of the held-out text fall from 3.10 at step 200 to 2.20 at step 400; "
        "order-5 byte counts reach 2.40."
    )


def test_other_columns_are_refused(tmp_path: Path):
    (tmp_path / "curve.csv").write_text("step,loss\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="loss"):
        training_curve.read_curve(tmp_path / "curve.csv")


def test_an_empty_curve_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="at least one row"):
        training_curve.draw([], 2.4, tmp_path / "curve.svg")


def test_the_committed_curve_is_the_cards():
    card = json.loads((DATA / "model_card.json").read_text(encoding="utf-8"))
    step, _, heldout_bpb = training_curve.read_curve(DATA / "training_curve.csv")[-1]
    assert step == sum(stage["steps"] for stage in card["recipe"]["stages"])
    assert heldout_bpb == pytest.approx(card["heldout_bpb_256"], abs=0.005)  # the card's weights are in bf16


@pytest.mark.skipif(not PICTURE.exists(), reason="the documentation isn't there: an installed package")
def test_the_committed_picture_shows_the_committed_figures(tmp_path: Path):
    training_curve.main(["--data", str(DATA), "--out", str(tmp_path / "curve.svg")])
    assert description(PICTURE) == description(tmp_path / "curve.svg")


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
