"""Attention and cache kernels: every level and type against float64, slots and positions in any order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from guarded import DTYPES, Guarded, assert_close, rounding, smallest

from flashperf import native

LEVELS = native.usable_levels()


every_type = pytest.mark.parametrize("dtype", DTYPES)


class Problem:
    """Rows of queries over a cache. Keys that no row may look at are NaN, so that looking shows."""

    def __init__(self, dtype, slot, position, heads=2, e=16, s=3, t=70, window=0, seed=0):
        rng = np.random.default_rng(seed)
        self.dtype, self.window, self.t = dtype, window, t
        self.slot, self.position = np.array(slot, np.int32), np.array(position, np.int32)
        self.m, self.scale = len(self.slot), float(np.float32(1 / np.sqrt(e)))
        k, v = rng.standard_normal((2, s, heads, t, e))
        self.seen = np.zeros((self.m, t), bool)
        for i, (at, last) in enumerate(zip(self.slot, self.position, strict=True)):
            if 0 <= at < s and 0 <= last < t:
                self.seen[i, max(0, last + 1 - window) if window else 0 : last + 1] = True
        for at in range(s):
            used = np.flatnonzero(self.seen[self.slot == at].any(0))
            first, end = (used[0], used[-1] + 1) if used.size else (0, 0)
            for cache in (k, v):
                cache[at, :, :first] = np.nan
                cache[at, :, end:] = np.nan
        self.q = Guarded((self.m, heads, e), dtype, rng.standard_normal((self.m, heads, e)))
        self.k, self.v = Guarded(k.shape, dtype, k), Guarded(v.shape, dtype, v)

    def fill_unseen(self):
        """Finite numbers in place of the NaN: for kernels that look at every key in use."""
        for cache in (self.k, self.v):
            cache.array[np.isnan(cache.values())] = 0

    def scores(self, mask=None):
        """[heads, m, t] in float64; -inf where a row doesn't look."""
        q, k = self.q.values(), np.nan_to_num(self.k.values())
        scores = np.stack(
            [np.einsum("he,hte->ht", q[i], k[at]) for i, at in enumerate(self.slot % len(k))], 1
        )
        seen = np.where(self.seen, 0.0, -np.inf) if mask is None else mask
        return scores * self.scale + seen

    def output(self, mask=None):
        scores, v = self.scores(mask), np.nan_to_num(self.v.values())
        peak = scores.max(-1, keepdims=True)
        p = np.exp(scores - np.where(np.isinf(peak), 0, peak))
        total = p.sum(-1, keepdims=True)
        p /= np.where(total == 0, 1, total)
        return np.stack([np.einsum("ht,hte->he", p[:, i], v[at]) for i, at in enumerate(self.slot % len(v))])

    def on_every_level(self, name, *arrays, **scalars):
        """Run ``name`` with a fresh output after ``arrays`` at every level; yields (level, output values)."""
        for level in LEVELS:
            output = Guarded(self.q.array.shape, self.dtype)
            native.library(level).prepare(name, *arrays, output.array, **scalars)()
            yield level, output.values()


def run(first, count):
    return list(range(first, first + count))


#: (slots, positions): prefill from 0 and later, decode, a packed and a shuffled batch, out-of-range rows
ARRANGEMENTS = {
    "one key": ([1], [0]),
    "decode": ([0, 2, 1], [5, 69, 33]),
    "prefill": ([2] * 70, run(0, 70)),
    "chunk of a prefill": ([1] * 17, run(40, 17)),
    "packed": ([0] * 5 + [1] * 33 + [2] * 9, run(0, 5) + run(20, 33) + run(60, 9)),
    "same slot, any order": ([1] * 9, [60, 3, 17, 0, 64, 69, 31, 32, 2]),
    "out of range": ([0, -1, 0, 3, 1, 1, 2**31 - 1, 0], [4, 4, -1, 2, 70, 2**31 - 1, 1, -(2**31)]),
    "padding among rows": ([0] * 6 + [-1] * 3 + [1] * 6, run(0, 6) + [0] * 3 + run(0, 6)),
}


def check(got, wanted, dtype, extra=0.0):
    assert_close(got, wanted, rounding(dtype), 1e-5 + smallest(dtype) + extra)


@pytest.mark.parametrize("window", [0, 1, 13, 1000])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@every_type
def test_online_attention_looks_at_the_keys_up_to_the_position(dtype, arrangement, window):
    p = Problem(dtype, *ARRANGEMENTS[arrangement], window=window)
    wanted = p.output()
    arrays = (p.q.array, p.k.array, p.v.array, p.slot, p.position)
    for _, got in p.on_every_level(f"attention_online_{dtype}", *arrays, window=window, scale=p.scale):
        check(got, wanted, dtype)


@every_type
def test_every_head_dimension_and_length(dtype):
    for e, t, rows in itertools.product((1, 2, 7, 16, 33, 64, 96), (1, 5, 16, 65, 130), (1, 3, 5, 50)):
        position = [(7 * i + t - 1) % t for i in range(rows)]
        p = Problem(dtype, [1] * rows, position, heads=1, e=e, s=2, t=t, seed=e + t)
        wanted = p.output()
        arrays = (p.q.array, p.k.array, p.v.array, p.slot, p.position)
        for _, got in p.on_every_level(f"attention_online_{dtype}", *arrays, window=0, scale=p.scale):
            check(got, wanted, dtype)


def additive_mask(p):
    mask = np.where(p.seen, 0.0, -np.inf).astype(np.float32)
    mask[:, ::3] -= 0.5  # not only 0 and -inf
    return mask


@pytest.mark.parametrize("extent", [0, 1, 16, 37, 70])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@every_type
def test_masked_and_materialised_attention_over_the_extent(dtype, arrangement, extent):
    p = Problem(dtype, *ARRANGEMENTS[arrangement], window=20)
    p.fill_unseen()
    mask, used = additive_mask(p), np.array([extent], np.int32)
    within = np.where(np.arange(p.t) < extent, mask, -np.inf)
    wanted = p.output(within)
    arrays = (p.q.array, p.k.array, p.v.array, p.slot, mask, used)
    for _, got in p.on_every_level(f"attention_online_masked_{dtype}", *arrays, scale=p.scale):
        check(got, wanted, dtype)
    unmasked = p.scores(np.where((p.slot >= 0) & (p.slot < 3), 0.0, -np.inf)[:, None])[..., :extent]
    for level in LEVELS:
        for passes in (
            ("softmax_extent",),
            ("scores_max", "scores_subtract_exp", "scores_sum", "scores_divide"),
        ):
            scores = Guarded((2, p.m, p.t), "f32")
            check(materialised(p, level, scores, used, mask, passes, unmasked), wanted, dtype)
            beyond = scores.array[:, :, extent:].view(np.uint32)
            assert (beyond == 0xFFFFFFFF).all(), "wrote keys beyond the extent"


def materialised(p, level, scores, used, mask, passes, unmasked):
    """Attention as separate kernels; checks the scores before the mask on the way. The output's values."""
    prepare = native.library(level).prepare
    q, k, v = p.q.array, p.k.array, p.v.array
    prepare(f"attention_scores_{p.dtype}", q, k, p.slot, used, scores.array, scale=p.scale)()
    assert_close(scores.values()[..., : used[0]], unmasked, rounding(p.dtype), 1e-5)
    prepare("add_mask", scores.array, mask, used)()
    rows = {name: Guarded((2, p.m), "f32") for name in ("peak", "total")}
    peak, total = (row.array for row in rows.values())
    operands = {
        "softmax_extent": (scores.array, used),
        "scores_max": (scores.array, used, peak),
        "scores_subtract_exp": (scores.array, peak, used),
        "scores_sum": (scores.array, used, total),
        "scores_divide": (scores.array, total, used),
    }
    for name in passes:
        prepare(name, *operands[name])()
    for row in rows.values():
        row.check()
    y = Guarded(q.shape, p.dtype)
    prepare(f"attention_values_{p.dtype}", scores.array, v, p.slot, used, y.array)()
    return y.values()


@pytest.mark.parametrize("window", [0, 1, 13])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@every_type
def test_windowed_scores(dtype, arrangement, window):
    p = Problem(dtype, *ARRANGEMENTS[arrangement], window=window)
    wanted = p.scores()
    for level, extent in itertools.product(LEVELS, (1, 40, 70)):
        scores, used = Guarded((2, p.m, p.t), "f32"), np.array([extent], np.int32)
        arrays = (p.q.array, p.k.array, p.slot, p.position, used, scores.array)
        prepare = native.library(level).prepare
        prepare(f"attention_scores_window_{dtype}", *arrays, window=window, scale=p.scale)()
        assert_close(scores.values()[..., :extent], wanted[..., :extent], rounding(dtype), 1e-5)
        assert (scores.array[..., extent:].view(np.uint32) == 0xFFFFFFFF).all()


@every_type
def test_scores_far_apart_and_fully_masked_rows_stay_finite(dtype):
    """Scores of +-1000 in blocks that come after smaller ones, and rows whose mask is -inf throughout."""
    for rows in (1, 2, 9, 20):
        p = Problem(dtype, [0] * rows, run(130, rows), s=1, t=150)
        p.k.array[0, :, ::65] *= 1 if dtype == "bf16" else 64  # bf16 is stored as integers
        p.fill_unseen()
        p.scale, mask, used = 16.0, additive_mask(p), np.array([150], np.int32)
        mask[rows // 2] = -np.inf
        extra = 1e-3  # an error in the last place of a score is multiplied by exp
        wanted, wanted_masked = p.output(), p.output(mask)
        arrays = (p.q.array, p.k.array, p.v.array, p.slot)
        online = f"attention_online_{dtype}"
        for _, got in p.on_every_level(online, *arrays, p.position, window=0, scale=16.0):
            check(got, wanted, dtype, extra)
        masked = f"attention_online_masked_{dtype}"
        for _, got in p.on_every_level(masked, *arrays, mask, used, scale=16.0):
            check(got, wanted_masked, dtype, extra)
            assert (got[rows // 2] == 0).all()


def test_nan_in_a_key_reaches_the_rows_that_see_it():
    p = Problem("f32", [0] * 20, run(0, 20), s=1, t=20)
    p.fill_unseen()
    p.k.array[0, 1, 7, 3] = np.nan
    arrays = (p.q.array, p.k.array, p.v.array, p.slot, p.position)
    for _, got in p.on_every_level("attention_online_f32", *arrays, window=0, scale=p.scale):
        bad = np.isnan(got).any(-1)
        assert bad[7:, 1].all()
        assert not bad[:7].any()
        assert not bad[:, 0].any()


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@every_type
def test_rope_append(dtype, arrangement):
    slot, position = (np.array(x, np.int32) for x in ARRANGEMENTS[arrangement])
    rng = np.random.default_rng(6)
    m, s, heads, t = len(slot), 3, 2, 70
    for e in (2, 6, 16, 34, 64):
        qkv = Guarded((m, 3 * heads * e), dtype, rng.standard_normal((m, 3 * heads * e)))
        cos, sin = (Guarded((t, e // 2), "f32", rng.standard_normal((t, e // 2))) for _ in range(2))
        k, v = (Guarded((s, heads, t, e), dtype, rng.standard_normal((s, heads, t, e))) for _ in range(2))
        wanted_k, wanted_v, wanted_q = k.values(), v.values(), np.zeros((m, heads, e))
        exact = qkv.values().reshape(m, 3, heads, e)
        for i in range(m):
            if not 0 <= position[i] < t:
                continue
            c, sn = cos.values()[position[i]], sin.values()[position[i]]
            wanted_q[i] = rotated(exact[i, 0], c, sn)
            if 0 <= slot[i] < s:
                wanted_k[slot[i], :, position[i]] = rotated(exact[i, 1], c, sn)
                wanted_v[slot[i], :, position[i]] = exact[i, 2]
        before = [k.array.copy(), v.array.copy()]
        for level in LEVELS:
            k.array[...], v.array[...] = before
            q = Guarded((m, heads, e), dtype)
            arrays = (qkv.array, cos.array, sin.array, slot, position, k.array, v.array, q.array)
            native.library(level).prepare(f"rope_append_{dtype}", *arrays)()
            assert_close(q.values(), wanted_q, rounding(dtype), 1e-6)
            assert_close(k.values(), wanted_k, rounding(dtype), 1e-6)
            np.testing.assert_array_equal(v.values(), wanted_v)


def test_rope_append_refuses_shapes_that_do_not_belong_together():
    arrays = [
        np.zeros(shape, np.float32) for shape in ((2, 3 * 8), (5, 2), (5, 2), (1, 2, 5, 4), (1, 2, 5, 4))
    ]
    index = np.zeros(2, np.int32)
    qkv, cos, sin, k, v = arrays
    with pytest.raises(native.PrepareError, match="cos"):
        native.prepare(
            "rope_append_f32", qkv, cos[:, :1].copy(), sin, index, index, k, v, np.zeros((2, 2, 4), "f")
        )
    q = np.ones((2, 2, 4), np.float32)
    native.prepare("rope_append_f32", np.ones((2, 9), np.float32), cos, sin, index, index, k, v, q)()
    assert (q == 0).all()
    assert (k == 0).all()
