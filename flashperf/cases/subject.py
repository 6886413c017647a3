"""A case as a worker process holds it: paths built, compared, proven to have run, then timed in double blocks."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashperf.blocks import BlockRunner
from flashperf.cases.definition import Built, OpenCase
from flashperf.cases.evidence import dispatches, operators_of, seen
from flashperf.cases.registry import case_named
from flashperf.disturbance import SystemProbe
from flashperf.store import to_json
from flashperf.timers import calibrate, time_calls

#: A longer call is a sample of its own: the lead-in and the eight samples of a block would take seconds.
_LEAST_SAMPLE_S = 1e-3
_PART_SAMPLES = 5
_DISPATCH_CALLS = 2000
_NESTED = 200
#: What the call of a fresh case returns: seconds of each call, of a later one, and compilations.
_STORY = frozenset({"times_s", "steady_s", "compilations"})


class WrongPathError(RuntimeError):
    """A path that gave a wrong result or did not run as declared; it is never timed."""


class CaseSubject:
    """Cases of one worker; torch is imported, and limited to a number of threads, when a case first needs it."""

    def __init__(self, seed: int, threads: int = 1) -> None:
        self.seed, self.threads = seed, threads
        self._runners: dict[tuple[str, int, str], BlockRunner] = {}
        self._probe = SystemProbe()

    def prepare(self, case_id: str, point: int, path: str, check: bool) -> dict[str, Any]:
        """Build the baseline and ``path`` at a point, compare them, see that they ran, find calls per sample.

        Returns what is known of both sides: facts, seconds of the first call and of the parts alone. Raises
        WrongPathError; nothing of that pair is timed then.
        """
        case = case_named(case_id)
        _limit_threads(case, self.threads)
        sizes = case.points[point].sizes
        names = (case.baseline, path)
        # Code and libraries that both sides load are charged to neither: the other side goes first in turn.
        order = (0, 1) if self.seed % 2 == 0 else (1, 0)
        built: dict[int, Built] = {}
        first_s: dict[int, float] = {}
        for side in order:
            built[side] = case.make(names[side], sizes, self.seed)
            first_s[side] = time_calls(built[side].call).wall_s
        if check:
            compare_results(case, names, (built[0], built[1]))
        sides = []
        for side in (0, 1):
            facts, objection = seen(built[side], case.uses_torch)
            if objection:
                raise WrongPathError(f"{names[side]} did not run as declared: {objection}")
            sides.append({"facts": facts, "first_s": first_s[side], "parts_s": _timed_parts(built[side])})
        self._runners[case_id, point, path] = _runner(case, names, sizes, self.seed, built, self._probe)
        return {"sides": sides}

    def block(self, case_id: str, point: int, path: str, seed: int) -> dict[str, Any]:
        """One double block of a prepared pair: A is the baseline."""
        runner = self._runners[case_id, point, path]
        runner.rng = np.random.default_rng(seed)
        return to_json(runner.run())

    def dispatch_prices(self) -> dict[str, float]:
        """What dispatching costs and next to nothing else, in seconds.

        called_s: an operator on a single element, called from Python; nested_s: one that another operator calls,
        from a foreach operator over many single elements.
        """
        import torch

        torch.set_num_threads(self.threads)
        x, many = torch.zeros(1), [torch.zeros(1) for _ in range(_NESTED)]
        add_all = functools.partial(torch._foreach_add_, many, 1)
        inside = dispatches(operators_of(add_all).nested)
        return {
            "called_s": _median_s(functools.partial(x.add_, 1), _DISPATCH_CALLS),
            "nested_s": _median_s(add_all, _DISPATCH_CALLS // _NESTED) / max(inside, 1),
        }

    def fresh(self, case_id: str, point: int, path: str) -> dict[str, Any]:
        """Run a path's calls from the first on, timed one by one: for a worker that has done nothing else."""
        case = case_named(case_id)
        _limit_threads(case, self.threads)
        begin = time.perf_counter()
        story = case.make(path, case.points[point].sizes, self.seed).call()
        missing = sorted(_STORY - set(story)) if isinstance(story, Mapping) else sorted(_STORY)
        if missing:
            raise WrongPathError(
                f"the call of {path} does not return {', '.join(missing)}, as a fresh case must"
            )
        return {"story": story, "seconds": time.perf_counter() - begin}


def _limit_threads(case: OpenCase, threads: int) -> None:
    """Of torch; other libraries are limited by the environment of the process."""
    if case.uses_torch:
        import torch

        torch.set_num_threads(threads)


def _runner(
    case: OpenCase,
    names: tuple[str, str],
    sizes: Mapping[str, int],
    seed: int,
    built: Mapping[int, Built],
    probe: SystemProbe,
) -> BlockRunner:
    calls = (
        calibrate(built[0].call, least_s=_LEAST_SAMPLE_S)[0],
        calibrate(built[1].call, least_s=_LEAST_SAMPLE_S)[0],
    )
    make = [functools.partial(_call_of, case, name, sizes, seed) for name in names]
    return BlockRunner((make[0], make[1]), calls, np.random.default_rng(seed), probe=probe)


def _call_of(case: OpenCase, path: str, sizes: Mapping[str, int], seed: int) -> Callable[[], Any]:
    return case.make(path, sizes, seed).call


def _timed_parts(built: Built) -> dict[str, float]:
    """Median seconds of every part alone, warm."""
    found = {}
    for name, part in built.parts.items():
        calls, _ = calibrate(part, least_s=_LEAST_SAMPLE_S)
        found[name] = _median_s(part, calls)
    return found


def _median_s(call: Callable[[], Any], calls: int) -> float:
    call()
    return statistics.median(time_calls(call, calls).wall_s for _ in range(_PART_SAMPLES))


def compare_results(case: OpenCase, names: tuple[str, str], built: tuple[Built, Built]) -> None:
    """Each path against its own float64 reference, or the second against the first. Raises WrongPathError."""
    results = [_arrays(side.call()) for side in built]
    for name, result, side, other in zip(names, results, built, (None, results[0]), strict=True):
        wanted = _arrays(side.reference()) if side.reference is not None else other
        if wanted is None:
            continue
        if [a.shape for a in wanted] != [a.shape for a in result]:
            raise WrongPathError(f"{name} gives other shapes than its reference")
        for got, want in zip(result, wanted, strict=True):
            scale = float(np.abs(want).max(initial=0.0)) or 1.0
            error = float(np.abs(got - want).max(initial=0.0)) / scale
            if not error <= side.tolerance:
                raise WrongPathError(
                    f"{name} is wrong: error {error:.2g} of the largest value, allowed {side.tolerance:.2g}"
                )


def _arrays(result: Any) -> list[np.ndarray]:
    """Every array of a result in float64."""
    if isinstance(result, list | tuple):
        return [array for item in result for array in _arrays(item)]
    if hasattr(result, "detach"):
        result = result.detach().double().cpu().numpy()
    return [np.asarray(result, dtype=np.float64)]
