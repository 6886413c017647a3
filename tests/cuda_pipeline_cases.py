"""Cases of the kernels that only the pipeline has: rows, norms, passes, masked attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cuda_checks import ROUNDOFF, Built, CudaCase, Expected, unset, values
from cuda_row_cases import _attend

from flashperf import dtypes
from flashperf.cuda.pipeline import steps
from flashperf.cuda.pipeline_steps import as_matrix
from flashperf.mechanisms._products import packed_spec

TYPES = ("f32", "f16", "bf16")
#: Arrays in the kernel's order, its scalars, what must come out.
Made = tuple[list[Any], dict[str, float], list[Expected]]


def case(module: str, kernel: str, label: str, make: Callable[[], Made]) -> CudaCase:
    def build() -> Built:
        arrays, scalars, expected = make()
        found = steps(kernel, arrays, scalars)
        assert [step.module for step in found] == [module]
        return [step.launch for step in found], expected

    return CudaCase(module, f"{kernel}/{label}", build)


def wide(array: np.ndarray, kind: str) -> np.ndarray:
    return dtypes.widen(array, kind)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def near(array: np.ndarray, kind: str, reference: np.ndarray, roundings: float = 4.0) -> Expected:
    """Within some roundings of the storage type, and of f32 for what is near zero."""
    u = ROUNDOFF[kind]
    return Expected(array, kind, reference, roundings * u * np.abs(reference) + 4e-6)


def exactly(array: np.ndarray, kind: str, reference: np.ndarray) -> Expected:
    return Expected(array, kind, reference, 0.0)


class Infinite(Expected):
    """An output that must be minus infinity where its reference is."""

    def check(self) -> None:
        assert isinstance(self.reference, np.ndarray)
        hidden = np.isneginf(self.reference)
        assert np.array_equal(np.isneginf(self.array), hidden)
        finite = [np.where(hidden, 0, array) for array in (self.array, self.reference)]
        Expected(finite[0].astype(self.array.dtype), self.dtype, finite[1], self.bound).check()


# ---- rows, norms, passes ----


def rows_cases(kind: str) -> list[CudaCase]:
    def embed() -> Made:
        table, index, y = values((9, 40), kind), np.array([3, 0, -4, 99], np.int32), unset((4, 40), kind)
        return [index, table, y], {}, [exactly(y, kind, wide(table, kind)[[3, 0, 0, 8]])]

    def rope() -> Made:
        m, heads, e, t, slots = 5, 2, 12, 7, 2
        qkv = values((m, 3 * heads * e), kind)
        angle = np.arange(t)[:, None] * 0.7 ** np.arange(e // 2)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        slot, position = np.array([0, 1, 1, 5, 0], np.int32), np.array([2, 0, 6, 3, 7], np.int32)
        caches = [values((slots, heads, t, e), kind, seed) for seed in (1, 2)]
        k_wanted, v_wanted = (wide(cache, kind) for cache in caches)
        q = unset((m, heads, e), kind)
        q_in, k_in, v_in = wide(qkv, kind).reshape(m, 3, heads, e).swapaxes(0, 1)
        turned = [np.zeros_like(q_in) for _ in range(2)]
        for i in range(m - 1):  # the last row's position is outside the tables
            for x, out in zip((q_in, k_in), turned, strict=True):
                a, b, c, s = x[i, :, : e // 2], x[i, :, e // 2 :], cos[position[i]], sin[position[i]]
                out[i] = np.concatenate((a * c - b * s, b * c + a * s), axis=1)
            if slot[i] < slots:
                k_wanted[slot[i], :, position[i]] = turned[1][i]
                v_wanted[slot[i], :, position[i]] = v_in[i]
        arrays = [qkv, cos, sin, slot, position, *caches, q]
        bound = 8 * ROUNDOFF[kind] * 12 + 1e-5
        wanted = ((q, turned[0]), (caches[0], k_wanted))
        found = [Expected(array, kind, reference, bound) for array, reference in wanted]
        return arrays, {}, [*found, exactly(caches[1], kind, v_wanted)]

    made = [
        case("pipeline", f"embed_{kind}", "clamped", embed),
        case("pipeline", f"rope_append_{kind}", "slots", rope),
    ]
    for cols in (96, 77, 1544, 1):
        made += norm_cases(kind, 3, cols)
    return made


def norm_cases(kind: str, rows: int, cols: int) -> list[CudaCase]:
    def norm(residual: bool) -> Made:
        x, delta = values((rows, cols), kind), values((rows, cols), kind, 1)
        weight, y = values((cols,), kind, 2), unset((rows, cols), kind)
        total = wide(x, kind) + (wide(delta, kind) if residual else 0.0)
        normed = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + 1e-5) * wide(weight, kind)
        arrays = [x, *([delta] if residual else []), weight, y]
        return arrays, {"eps": 1e-5}, [near(y, kind, normed), near(x, kind, total, 1.0)]

    label = f"rows={rows}-cols={cols}"
    return [
        case("pipeline", f"rmsnorm_{kind}", label, lambda: norm(False)),
        case("pipeline", f"residual_rmsnorm_{kind}", label, lambda: norm(True)),
    ]


def pass_cases(kind: str) -> list[CudaCase]:
    def flat(function: Callable[..., np.ndarray], inputs: int, in_place: bool = False) -> Made:
        arrays = [values((300,), kind, seed) for seed in range(inputs)]
        reference = function(*(wide(array, kind) for array in arrays))
        y = arrays[0] if in_place else unset((300,), kind)
        return [*arrays, *([] if in_place else [y])], {}, [near(y, kind, reference)]

    def by_row(operand: int | None, function: Callable[..., np.ndarray]) -> Made:
        x = values((3, 300), kind)
        if operand is None:
            y = unset((3,), kind)
            return [x, y], {}, [near(y, kind, function(wide(x, kind)))]
        other, y = values((x.shape[operand],), kind, 1), unset(x.shape, kind)
        spread = wide(other, kind)[:, None] if operand == 0 else wide(other, kind)
        return [x, other, y], {}, [near(y, kind, wide(x, kind) * spread)]

    def inverse_root() -> Made:
        x, y = dtypes.cast(np.linspace(0.1, 9, 300).astype(np.float32), kind), unset((300,), kind)
        return [x, y], {"eps": 1e-5}, [near(y, kind, 1 / np.sqrt(wide(x, kind) + 1e-5))]

    def packed() -> Made:
        w = values((8, 40), kind)
        to = unset(packed_spec(8, 40, kind).shape, kind)
        return [w, to], {}, [exactly(as_matrix(to, 8, 40), kind, wide(w, kind))]

    makes: dict[str, Callable[[], Made]] = {
        "accumulate": lambda: flat(lambda a, b: a + b, 2, in_place=True),
        "square": lambda: flat(lambda a: a * a, 1),
        "silu": lambda: flat(silu, 1),
        "multiply": lambda: flat(lambda a, b: a * b, 2),
        "swiglu": lambda: flat(lambda a, b: silu(a) * b, 2),
        "row_mean": lambda: by_row(None, lambda x: x.mean(axis=1)),
        "scale_rows": lambda: by_row(0, np.multiply),
        "scale_cols": lambda: by_row(1, np.multiply),
        "rsqrt_eps": inverse_root,
        "pack": packed,
    }
    return [case("pipeline", f"{name}_{kind}", "odd", make) for name, make in makes.items()]


# ---- attention with a mask, an extent, scores in memory ----


def attention_parts(kind: str, m: int, heads: int, e: int, t: int) -> dict[str, Any]:
    """Queries of two slots and one invalid; beyond the extent the caches and the mask hold NaN."""
    extent = max(1, t - 3)
    caches = [values((2, heads, t, e), kind, seed) for seed in (1, 2)]
    for cache in caches:
        cache[:, :, extent:] = np.nan if kind != "bf16" else 0xFFFF
    slot = np.sort(np.arange(m) % 2).astype(np.int32)
    position = (np.arange(m) % extent).astype(np.int32)
    if m > 2:
        slot[1] = 9
    mask = np.full((m, t), np.nan, np.float32)
    key = np.arange(extent)
    mask[:, :extent] = np.where(key <= position[:, None], 0.0, -np.inf)
    return {
        "q": values((m, heads, e), kind),
        "caches": caches,
        "slot": slot,
        "position": position,
        "extent": np.array([extent], np.int32),
        "mask": mask,
        "seen": np.arange(t) < np.where(slot[:, None] < 2, position[:, None] + 1, 0),
    }


def masked_case(kind: str, m: int, heads: int, e: int, t: int) -> CudaCase:
    def make() -> Made:
        p = attention_parts(kind, m, heads, e, t)
        y = unset((m, heads, e), kind)
        wide_parts = [wide(array, kind) for array in (p["q"], *p["caches"])]
        reference = _attend(*wide_parts, p["seen"], np.minimum(p["slot"], 1))
        scores = np.abs(wide_parts[0]).max() * 8 * e**0.5
        bound = (2 * ROUNDOFF[kind] + 4 * (e + 8 + scores) * ROUNDOFF["f32"]) * 8
        arrays = [p["q"], *p["caches"], p["slot"], p["mask"], p["extent"], y]
        return arrays, {"scale": e**-0.5}, [Expected(y, kind, reference, bound)]

    label = f"m={m}-heads={heads}-e={e}-t={t}"
    return case("pipeline_attention", f"attention_online_masked_{kind}", label, make)


def score_cases(kind: str) -> list[CudaCase]:
    m, heads, e, t, window = 6, 2, 20, 40, 4

    def scores(windowed: bool) -> Made:
        p = attention_parts(kind, m, heads, e, t)
        out = np.zeros((heads, m, t), np.float32)
        keys = np.nan_to_num(wide(p["caches"][0], kind))[np.minimum(p["slot"], 1)]
        reference = np.einsum("ihe,ihte->hit", wide(p["q"], kind), keys) * e**-0.5
        behind = p["position"][:, None] - np.arange(t)
        valid = (p["slot"] < 2)[:, None]
        used = np.arange(t) < p["extent"][0]
        if not windowed:
            seen = Expected(out, "f32", np.where(used & valid, reference, 0.0), 1e-3)
        else:
            inside = (behind >= 0) & (behind < window) & valid
            reference = np.where(inside, reference, -np.inf)
            seen = Infinite(out, "f32", np.where(used, reference, 0.0), 1e-3)
        extra = [p["position"]] if windowed else []
        arrays = [p["q"], p["caches"][0], p["slot"], *extra, p["extent"], out]
        return arrays, {"scale": e**-0.5, **({"window": window} if windowed else {})}, [seen]

    def weighted() -> Made:
        p = attention_parts(kind, m, heads, e, t)
        weights, y = values((heads, m, t), "f32"), unset((m, heads, e), kind)
        rows = np.nan_to_num(wide(p["caches"][1], kind))[np.minimum(p["slot"], 1)]
        used = np.where(np.arange(t) < p["extent"][0], weights, 0.0)
        reference = np.einsum("hit,ihte->ihe", used, rows) * (p["slot"] < 2)[:, None, None]
        bound = 2 * ROUNDOFF[kind] * np.abs(reference) + 1e-3
        arrays = [weights, p["caches"][1], p["slot"], p["extent"], y]
        return arrays, {}, [Expected(y, kind, reference, bound)]

    stem, module = "attention_scores", "pipeline_attention"
    return [
        case(module, f"{stem}_{kind}", "extent", lambda: scores(False)),
        case(module, f"{stem}_window_{kind}", "extent", lambda: scores(True)),
        case(module, f"attention_values_{kind}", "extent", weighted),
    ]


def score_pass_cases() -> list[CudaCase]:
    heads, m, t, used = 2, 5, 70, 67
    extent = np.array([used], np.int32)

    def over(kernel: str) -> Made:
        scores, other = values((heads, m, t), "f32"), values((heads, m), "f32", 1)
        inside, kept = scores[..., :used].astype(np.float64), scores[..., used:].copy()
        mask = values((m, t), "f32", 2)
        exponent = np.exp(inside - other[..., None])
        softmax = np.exp(inside - inside.max(axis=-1, keepdims=True))
        in_place = {
            "add_mask": inside + mask[:, :used],
            "softmax_extent": softmax / softmax.sum(axis=-1, keepdims=True),
            "scores_subtract_exp": exponent,
            "scores_divide": inside / np.abs(other[..., None]),
        }
        if kernel in in_place:
            reference = np.concatenate((in_place[kernel], kept), axis=-1)
            operand = {"add_mask": [mask], "softmax_extent": []}.get(kernel, [other])
            if kernel == "scores_divide":
                operand = [np.abs(other)]
            return [scores, *operand, extent], {}, [Expected(scores, "f32", reference, 1e-5, 1e-5)]
        reference = inside.max(axis=-1) if kernel == "scores_max" else inside.sum(axis=-1)
        out = unset((heads, m), "f32")
        return [scores, extent, out], {}, [Expected(out, "f32", reference, 1e-4)]

    names = ("add_mask", "softmax_extent", "scores_subtract_exp", "scores_divide", "scores_max", "scores_sum")
    return [
        case("pipeline_attention", kernel, "extent", lambda kernel=kernel: over(kernel)) for kernel in names
    ]


def pipeline_cases() -> list[CudaCase]:
    """Every kernel of the pipeline's own files but those of its products."""
    cases = score_pass_cases()
    for kind in TYPES:
        cases += [*rows_cases(kind), *pass_cases(kind), *score_cases(kind)]
        cases += [masked_case(kind, *size) for size in ((40, 2, 16, 50), (3, 2, 80, 9), (9, 1, 20, 70))]
    return cases
