"""Two callables of the user's, in one process: checked against float64, then timed in double blocks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.blocks import Block, BlockRunner, CacheSweep
from flashperf.check import CHUNK, check_output
from flashperf.comparing import arrays, transport
from flashperf.comparing.side import Side, in_double
from flashperf.disturbance import Probe, SystemProbe
from flashperf.dtypes import UNIT_ROUNDOFF, widen
from flashperf.environment import last_level_cache_bytes
from flashperf.errors import UserError
from flashperf.problem import CaseError, WrongResult
from flashperf.records import Check, Tolerance
from flashperf.store import from_json, to_json
from flashperf.timers import SYSTEM_CLOCK, Clock, calibrate, time_calls

#: Default tolerance, in unit roundoffs of the output's type times the largest reference value. f32 and f64:
#: what sums of some thousand terms lose in their own precision (TF32 and bf16 products do not pass as f32).
#: Half types: a few roundings of inputs and output around f32 sums.
ROUNDOFFS = {"f64": 1024, "f32": 1024, "f16": 16, "bf16": 8}


@dataclass(frozen=True)
class PairSpec:
    """What is compared, as ``flashperf.compare`` takes it."""

    a: Callable[..., Any]
    b: Callable[..., Any]
    inputs: Any
    reference: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    names: tuple[str, str] = ("a", "b")
    cache: str = "warm"


@dataclass(frozen=True)
class Prepared:
    """What is known before timing.

    Of each side the check nearest to its limit, the seconds of the very first call and the calls per sample;
    then the state of the caches, and where the reference came from.
    """

    checks: tuple[Check, Check]
    first_call_s: tuple[float, float]
    calls_per_sample: tuple[int, int]
    cache: str
    reference: str


class Pair:
    """A pair bound to inputs in this process."""

    def __init__(
        self, spec: PairSpec, seed: int, clock: Clock = SYSTEM_CLOCK, probe: Probe | None = None
    ) -> None:
        """Makes the inputs.

        Raises CaseError if they hold NaN, Inf or nothing, or lack one that ``outputs`` names.
        """
        self.spec, self.seed, self.clock = spec, seed, clock
        self._probe = probe or SystemProbe()
        made = spec.inputs(seed) if callable(spec.inputs) else spec.inputs
        self.inputs = (made,) if arrays.is_array(made) else made
        leaves = arrays.flatten(self.inputs)
        for name, leaf in leaves.items():
            _check_input(name, leaf, name in spec.outputs)
        for name in spec.outputs:
            if name not in leaves:
                raise CaseError(f"outputs names {name!r}, but the inputs are {', '.join(leaves) or 'none'}")
        self._runner: BlockRunner | None = None

    def side(self, which: int) -> Side:
        """Side 0 (a) or 1 (b) with fresh buffers."""
        function = (self.spec.a, self.spec.b)[which]
        inputs = arrays.map_arrays(self.inputs, arrays.fresh)
        return Side(self.spec.names[which], function, inputs, self.spec.outputs)

    def prepare(self, known: Prepared | None = None) -> Prepared:
        """Check both sides, then calibrate: nothing but the first calls is timed before both are right.

        ``known`` is what another process found on the same inputs: its checks then stand for this one too.
        Raises WrongResult, CaseError, and UserError for what a callable raises.
        """
        first_call_s = [0.0, 0.0]
        for which in (
            (0, 1) if self.seed % 2 == 0 else (1, 0)
        ):  # who comes first pays for what both have to load
            side = self.side(which)
            first_call_s[which] = side.guarded(functools.partial(self._time_once, side))
        checks, source = (known.checks, known.reference) if known else self._check_both()
        sweep = CacheSweep(last_level_cache_bytes()) if self.spec.cache == "cold" else None
        calls = (1, 1)
        if sweep is None:
            calls = (
                calibrate(self.side(0).bound(), self.clock)[0],
                calibrate(self.side(1).bound(), self.clock)[0],
            )
        build = (lambda: self.side(0).bound(), lambda: self.side(1).bound())
        self._runner = BlockRunner(build, calls, np.random.default_rng(), sweep, self.clock, self._probe)
        state = sweep.state if sweep else "warm"
        return Prepared(checks, (first_call_s[0], first_call_s[1]), calls, state, source)

    def _check_both(self) -> tuple[tuple[Check, Check], str]:
        """Both checks, and where the reference came from."""
        reference, source = self._reference()
        check_a, own_error = self._check(0, reference, {})
        check_b, _ = self._check(1, reference, own_error if self.spec.reference is None else {})
        return (check_a, check_b), source

    def _time_once(self, side: Side) -> float:
        return time_calls(side.bound(), 1, self.clock).wall_s

    def block(self, seed: int) -> Block:
        """One double block; ``prepare`` comes first."""
        if self._runner is None:
            raise RuntimeError("a pair is checked before it is timed")
        self._runner.rng = np.random.default_rng(seed)
        return self._runner.run()

    def _reference(self) -> tuple[dict[str, Any], str]:
        """Results by name from float64 inputs: of the reference, else of ``a``, else of ``a`` as it is."""
        wide = arrays.map_arrays(self.inputs, arrays.in_float64)
        if self.spec.reference is not None:
            side = Side("the reference", self.spec.reference, wide, self.spec.outputs)
            return side.results(), "the given reference"
        name = self.spec.names[0]
        try:
            side = Side(name, in_double(self.spec.a), wide, self.spec.outputs)
            return side.results(), f"{name} in float64"
        except UserError as error:
            results = {key: arrays.fresh(value) for key, value in self.side(0).results().items()}
            return results, f"{name} in its own precision, since float64 failed: {error}"

    def _check(
        self, which: int, reference: dict[str, Any], own_error: Mapping[str, float]
    ) -> tuple[Check, dict[str, float]]:
        """The check that is nearest to its limit, and the largest error of every result."""
        side = self.side(which)
        results = side.results_after_poison()
        originals = arrays.flatten(self.inputs)
        for name, leaf in side.leaves.items():
            if name not in self.spec.outputs and not arrays.same_bytes(originals[name], leaf):
                reason = (
                    f"it changed its input {name}; inputs that a call writes are named with outputs=(...)"
                )
                raise WrongResult(side.name, Check(False, 0.0, 0.0, 0.0, (), 0.0, reason, name))
        if set(results) != set(reference):
            raise CaseError(f"{side.name} gives {', '.join(results)}, the reference {', '.join(reference)}")
        checks = [
            self._judge(name, results[name], reference[name], own_error.get(name, 0.0)) for name in reference
        ]
        for check in checks:
            if not check.passed:
                raise WrongResult(side.name, check)
        worst = max(checks, key=lambda check: check.max_abs_error / check.limit if check.limit else 0.0)
        return worst, {check.output: check.max_abs_error for check in checks}

    def _judge(self, name: str, result: Any, reference: Any, own_error: float) -> Check:
        values, dtype = arrays.to_numpy(result)
        wanted, kind = arrays.to_numpy(reference)
        wanted = wanted if kind == "f64" else widen(wanted, kind)
        return check_output(name, values, dtype, wanted, self._tolerance(dtype, wanted, own_error))

    def _tolerance(self, dtype: str, reference: np.ndarray, own_error: float) -> Tolerance:
        if self.spec.rtol is not None or self.spec.atol is not None:
            return Tolerance(self.spec.rtol or 0.0, self.spec.atol or 0.0, "rtol and atol as given")
        if dtype not in UNIT_ROUNDOFF:
            return Tolerance(0.0, 0.0, "integers are exact; rtol= and atol= allow more")
        scale = 0.0
        for part in _chunks(reference):
            scale = max(scale, float(np.abs(part[np.isfinite(part)]).max(initial=0.0)))
        limit = max(ROUNDOFFS[dtype] * UNIT_ROUNDOFF[dtype] * scale, 2 * own_error)
        reason = f"{ROUNDOFFS[dtype]} roundings of {dtype} or twice the error of {self.spec.names[0]}"
        return Tolerance(0.0, limit, f"{reason}; rtol= and atol= allow more")


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in parts that stay in the cache."""
    flat = values.reshape(-1)
    return (flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK))


def _check_input(name: str, leaf: Any, is_output: bool) -> None:
    values, dtype = arrays.to_numpy(leaf)
    if values.size == 0:
        raise CaseError(f"input {name} has no elements: shape {tuple(leaf.shape)}")
    if not is_output and not all(np.isfinite(widen(part, dtype)).all() for part in _chunks(values)):
        raise CaseError(f"input {name} holds NaN or infinite values; inputs must be finite")


class PairWorker:
    """A Pair as a worker process holds it (flashperf.worker): JSON in, JSON out."""

    def __init__(self, payload: str, seed: int, threads: int | None) -> None:
        """``payload`` is a file that holds what ``transport.dumps`` made of a PairSpec."""
        spec = transport.loads(Path(payload).read_bytes())
        set_torch_threads(threads)
        self._pair = Pair(spec, seed)

    def prepare_pair(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """As ``Pair.prepare``; a wrong result comes back as its check and the name of its side."""
        try:
            return {"prepared": to_json(self._pair.prepare(from_json(Prepared, known) if known else None))}
        except WrongResult as error:
            return {"wrong": to_json(error.check), "who": error.who}

    def block(self, seed: int) -> dict[str, Any]:
        """As ``Pair.block``."""
        return to_json(self._pair.block(seed))


def set_torch_threads(threads: int | None) -> None:
    """Torch keeps a pool of its own, which threadpoolctl doesn't reach; None leaves it alone."""
    torch = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(threads)
