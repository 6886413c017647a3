"""The float64 reference: against torch, against its own definition, and on the committed weights."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from flashperf.pipeline import reference, text
from flashperf.pipeline.config import SMALL, ModelConfig
from flashperf.pipeline.ngram import ByteModel
from flashperf.pipeline.weights import load_weights, random_weights, small_weights_path

CONFIG = ModelConfig("toy", layers=2, dim=48, heads=3, ffn=80)
WEIGHTS = random_weights(CONFIG, seed=5)
TOKENS = np.random.default_rng(7).integers(0, 256, (2, 24))


def test_agrees_with_torch_in_float64():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from flashperf.pipeline.torch_model import Model

    model = Model(CONFIG).double()
    model.load_arrays({name: array.astype(np.float64) for name, array in WEIGHTS.items()})
    with torch.no_grad():
        expected = model(torch.from_numpy(TOKENS)).numpy()
    np.testing.assert_allclose(reference.forward(WEIGHTS, CONFIG, TOKENS), expected, rtol=1e-10, atol=1e-11)


def test_attention_agrees_with_torchs_own():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    qkv = np.random.default_rng(1).standard_normal((10, 3 * CONFIG.dim))
    q, k, v = (
        torch.from_numpy(part.reshape(10, CONFIG.heads, CONFIG.head_dim).transpose(1, 0, 2).copy())
        for part in np.split(qkv, 3, axis=1)
    )
    q, k = (torch.from_numpy(reference.rope(x.numpy(), CONFIG.rope_theta)) for x in (q, k))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_allclose(
        reference.attention(qkv, CONFIG), expected.transpose(0, 1).reshape(10, CONFIG.dim).numpy(), rtol=1e-10
    )


def test_a_later_byte_never_changes_earlier_logits():
    changed = TOKENS.copy()
    changed[:, 15] = (changed[:, 15] + 1) % 256
    before, after = (reference.forward(WEIGHTS, CONFIG, tokens) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(before[:, :15], after[:, :15])
    assert (np.abs(before[:, 15:] - after[:, 15:]).max(axis=-1) > 1e-6).all()


def test_a_window_hides_what_lies_before_it():
    one_layer = ModelConfig("toy", layers=1, dim=48, heads=3, ffn=80)
    changed = TOKENS.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 256
    before, after = (reference.forward(WEIGHTS, one_layer, tokens, span=4) for tokens in (TOKENS, changed))
    reached = np.abs(before - after).max(axis=(0, 2)) > 1e-9
    assert np.flatnonzero(reached).tolist() == [3, 4, 5, 6]


def test_a_window_as_long_as_the_text_is_no_window():
    full = reference.forward(WEIGHTS, CONFIG, TOKENS)
    np.testing.assert_allclose(reference.forward(WEIGHTS, CONFIG, TOKENS, span=24), full, rtol=1e-12)
    narrow = reference.forward(WEIGHTS, CONFIG, TOKENS, span=23)
    np.testing.assert_allclose(narrow[:, :23], full[:, :23], rtol=1e-12)
    assert not np.allclose(narrow[:, 23], full[:, 23])


def test_sequences_of_unlike_length_are_each_their_own():
    rows = [bytes(TOKENS[0].tolist()), TOKENS[1, :9].tolist()]
    logits = reference.forward(WEIGHTS, CONFIG, rows)
    assert logits.shape == (2, 24, 256)
    assert logits.dtype == np.float64
    np.testing.assert_array_equal(logits[1, :9], reference.forward(WEIGHTS, CONFIG, TOKENS[1:, :9])[0])
    assert np.isnan(logits[1, 9:]).all()
    assert not np.isnan(logits[0]).any()


def test_rope_keeps_lengths_and_depends_on_distance_only():
    x = np.random.default_rng(0).standard_normal((1, 1, 32))
    turned = reference.rope(np.repeat(x, 50, axis=1), 10000.0)[0]
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x), rtol=1e-12)
    assert turned[10] @ turned[3] == pytest.approx(turned[47] @ turned[40], rel=1e-10)
    np.testing.assert_array_equal(turned[0], x[0, 0])


@pytest.mark.parametrize(
    ("tokens", "span", "fault"),
    [
        ([[1]], 0, "span"),
        ([[256]], None, "0 to 255"),
        ([[-1]], None, "0 to 255"),
        ([[]], None, "at least one"),
        ([], None, "at least one"),
        ([[0.5]], None, "integers"),
        ([[[1]]], None, "integers"),
    ],
)
def test_invalid_input_is_refused(tokens: list, span: int | None, fault: str):
    with pytest.raises(ValueError, match=fault):
        reference.forward(WEIGHTS, CONFIG, tokens, span)


def test_figures_of_known_logits():
    logits = np.full((2, 4), -np.inf)
    logits[0] = 3.0  # four equal chances: 2 bits
    logits[1, 2] = logits[1, 3] = 1e4  # two: 1 bit, and no overflow
    assert reference.bits_per_byte(logits, np.array([1, 3])) == pytest.approx(1.5)
    assert reference.accuracy(logits, np.array([0, 2])) == 1.0
    assert reference.accuracy(logits, np.array([1, 2])) == 0.5


def test_figures_refuse_padding_and_unlike_shapes():
    with pytest.raises(ValueError, match="NaN"):
        reference.accuracy(np.full((1, 4), np.nan), np.array([0]))
    with pytest.raises(ValueError, match="don't fit"):
        reference.bits_per_byte(np.zeros((2, 4)), np.array([0]))


def test_committed_weights_predict_the_heldout_text():
    card = json.loads(small_weights_path().with_name("model_card.json").read_text(encoding="utf-8"))
    weights = load_weights(small_weights_path(), SMALL)
    start = np.frombuffer(text.heldout_bytes()[:4097], np.uint8)
    targets = start[1:].reshape(4, 1024)
    logits = reference.forward(weights, SMALL, start[:4096].reshape(4, 1024))
    bpb = reference.bits_per_byte(logits, targets)
    assert bpb < 1.95
    assert bpb < card["order5_bpb"] - 0.3
    assert reference.accuracy(logits, targets) > 0.5


def test_the_yardstick_on_texts_with_known_answers():
    assert ByteModel(b"", order=5).bits_per_byte(b"abc") == pytest.approx(8.0)
    assert ByteModel(b"ab" * 500, order=5).bits_per_byte(b"ab" * 20) < 0.2
    # after "a": one "b", one kind; order 0: p(b) = (1 + 2/256) / (2 + 2)
    order0 = (1 + 2 / 256) / 4
    assert ByteModel(b"ab", order=1).probability(ord("b"), b"a") == pytest.approx((1 + order0) / 2)


def test_the_yardsticks_chances_sum_to_one():
    model = ByteModel(text.heldout_bytes()[:3000], order=3)
    for context in (b"", b"the", b"\xff\xfe", b"object th"):
        assert math.fsum(model.probability(byte, context) for byte in range(256)) == pytest.approx(1.0)
