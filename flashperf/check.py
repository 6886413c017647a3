"""Whether an output is right: compared element by element, and as a whole, with a float64 reference. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flashperf.dtypes import NUMPY_TYPES, widen
from flashperf.records import ArraySpec, Check, Tolerance

#: An output no nearer to the reference than this is rejected whatever the tolerance: all zeros have exactly
#: 0 dB, so a loose absolute tolerance on small numbers must not let them through.
FLOOR_SNR_DB = 6.0
CHUNK = 1 << 16  # elements judged at once


def check_output(
    name: str, got: np.ndarray, dtype: str, reference_f64: np.ndarray, tolerance: Tolerance
) -> Check:
    """Judge one output array against its reference of the same shape, float64.

    ``dtype`` is the short name that the output must have. Not passed: another shape or dtype, NaN or Inf
    where the reference has none, elements that still hold the poison, an element beyond the tolerance, or a
    signal-to-noise ratio below ``tolerance.min_snr_db`` (at least FLOOR_SNR_DB, where the reference is not
    all zeros). ``max_abs_error`` is the largest of all, ``max_rel_error`` the same over the largest absolute
    reference; ``worst_index`` is the element that uses up most of its limit, and ``limit`` that limit.
    """
    return _check(name, got, dtype, reference_f64, tolerance)[0]


def check_outputs(
    specs: Mapping[str, ArraySpec],
    got: Mapping[str, np.ndarray],
    reference_f64: Mapping[str, np.ndarray],
    tolerance: Tolerance,
) -> Check:
    """Judge all outputs of a call; the first that fails, else the one that came nearest to its limit.

    An output that ``specs`` declares and ``got`` or the reference lacks is a failure.
    """
    judged = []
    for name, spec in specs.items():
        for holder, values in (("call", got), ("reference", reference_f64)):
            if name not in values:
                return _rejected(name, f"the {holder} gives no output {name}")
        if tuple(reference_f64[name].shape) != tuple(spec.shape):
            shape = reference_f64[name].shape
            return _rejected(name, f"the reference of {name} has shape {shape}, declared {spec.shape}")
        check, used = _check(name, got[name], spec.dtype, reference_f64[name], tolerance)
        if not check.passed:
            return check
        judged.append((used, check))
    if not judged:
        return _rejected("", "the mechanism declares no outputs")
    return max(judged, key=lambda pair: pair[0])[1]


def _check(
    name: str, got: np.ndarray, dtype: str, reference_f64: np.ndarray, tolerance: Tolerance
) -> tuple[Check, float]:
    """The check, and the largest fraction of its limit that an element uses up."""
    if not isinstance(got, np.ndarray):
        return _rejected(name, f"{name} is a {type(got).__name__}, not an array"), math.inf
    if got.shape != reference_f64.shape:
        reason = f"{name} has shape {got.shape}, the reference {reference_f64.shape}"
        return _rejected(name, reason), math.inf
    if got.dtype != NUMPY_TYPES[dtype]:
        reason = f"{name} has dtype {got.dtype}, should be {dtype} ({NUMPY_TYPES[dtype]})"
        return _rejected(name, reason), math.inf
    if got.size == 0:
        return _rejected(name, f"{name} has no elements: shape {got.shape}"), math.inf
    return _judge(name, got, dtype, np.asarray(reference_f64), tolerance)


def _rejected(name: str, reason: str) -> Check:
    return Check(False, math.nan, math.nan, math.nan, (), math.nan, reason, name)


@dataclass
class _Tally:
    """What is known of an output after some of its chunks."""

    largest: float = 0.0
    scale: float = 0.0
    noise: float = 0.0
    signal: float = 0.0
    worst: int = 0
    worst_ratio: float = -1.0
    worst_limit: float = 0.0
    broken: int = 0
    unwritten: int = 0
    first_unwritten: int = 0


def _judge(
    name: str, raw: np.ndarray, dtype: str, reference: np.ndarray, tolerance: Tolerance
) -> tuple[Check, float]:
    """In chunks that stay in the cache: whole-array temporaries of a large output cost seconds."""
    tally, flat, wanted = _Tally(), raw.reshape(-1), reference.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        _judge_chunk(
            tally, start, flat[start : start + CHUNK], dtype, wanted[start : start + CHUNK], tolerance
        )
    worst = np.unravel_index(tally.worst, raw.shape)
    got = float(widen(flat[tally.worst : tally.worst + 1], dtype)[0])
    expected = float(wanted[tally.worst])
    snr = -math.inf if tally.broken else _decibels(tally.signal, tally.noise)
    largest = math.inf if tally.broken else tally.largest
    relative = largest / tally.scale if tally.scale else (math.inf if largest else 0.0)
    reason = _why_broken(name, raw.shape, expected, tally, worst)
    if not reason and tally.worst_ratio > 1:
        reason = f"{_element(name, worst)} is {got:.6g}, the reference {expected:.6g}: error "
        reason += f"{abs(got - expected):.3g} above the limit {tally.worst_limit:.3g} ({tolerance.reason})"
    reason = reason or _why_noisy(name, snr, tally.scale, tolerance)
    index = tuple(int(i) for i in worst)
    check = Check(not reason, largest, relative, snr, index, tally.worst_limit, reason, name)
    return check, tally.worst_ratio


def _judge_chunk(
    tally: _Tally, start: int, raw: np.ndarray, dtype: str, reference: np.ndarray, tolerance: Tolerance
) -> None:
    got, reference = widen(raw, dtype), np.asarray(reference, np.float64)
    finite = np.isfinite(reference)
    same_special = np.where(np.isnan(reference), np.isnan(got), got == reference)
    broken = np.where(finite, ~np.isfinite(got), ~same_special)
    limit = tolerance.absolute + tolerance.relative * np.abs(np.where(finite, reference, 0.0))
    with np.errstate(invalid="ignore"):
        error = np.abs(np.where(finite & ~broken, got - reference, 0.0))
    ratio = np.where(broken, np.inf, _over(error, limit))
    at = int(np.argmax(ratio))
    if ratio[at] > tally.worst_ratio:
        tally.worst, tally.worst_ratio, tally.worst_limit = start + at, float(ratio[at]), float(limit[at])
    signal = reference[finite]
    tally.scale = max(tally.scale, float(np.abs(signal).max(initial=0.0)))
    tally.largest = max(tally.largest, float(error.max()))
    tally.noise += float(np.square(error[finite]).sum())
    tally.signal += float(np.square(signal).sum())
    if broken.any():
        tally.broken += int(broken.sum())
        bytes_of = np.ascontiguousarray(raw).view(np.uint8).reshape(raw.size, -1)
        unwritten = broken & (bytes_of == 0xFF).all(axis=-1)
        if unwritten.any() and not tally.unwritten:
            tally.first_unwritten = start + int(np.argmax(unwritten))
        tally.unwritten += int(unwritten.sum())


def _over(error: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """error / limit, where 0 / 0 is 0 and an error over a limit of 0 is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / limit)


def snr_db(reference: np.ndarray, error: np.ndarray) -> float:
    """10 log10 of the energy of reference over error; inf without error, -inf without signal."""
    return _decibels(float(np.square(reference).sum()), float(np.square(error).sum()))


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def _element(name: str, index: tuple[np.intp, ...]) -> str:
    return f"{name}[{', '.join(str(int(i)) for i in index)}]"


def _why_broken(
    name: str, shape: tuple[int, ...], expected: float, tally: _Tally, worst: tuple[np.intp, ...]
) -> str:
    """Poison left over, or NaN and Inf in the wrong places; empty if there is none."""
    if not tally.broken:
        return ""
    size = math.prod(shape)
    if tally.unwritten:
        first = np.unravel_index(tally.first_unwritten, shape)
        return f"{tally.unwritten} of {size} elements never written, first {_element(name, first)}"
    what = "are NaN or infinite where the reference is not"
    if not math.isfinite(expected):
        what = "differ from a reference that is NaN or infinite there"
    return f"{tally.broken} of {size} elements {what}, first {_element(name, worst)}"


def _why_noisy(name: str, snr: float, scale: float, tolerance: Tolerance) -> str:
    if scale == 0:
        return ""  # without a signal there is no ratio; the elements were judged one by one
    needed = max(FLOOR_SNR_DB, tolerance.min_snr_db or FLOOR_SNR_DB)
    if snr >= needed:
        return ""
    return f"{name} has a signal-to-noise ratio of {snr:.1f} dB, below {needed:.1f} dB ({tolerance.reason})"
