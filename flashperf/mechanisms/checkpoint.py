"""Checkpoint: what saving the state every n steps costs, waited for or written beside the work.

The unit of work is ``steps`` updates of a state of ``megabytes`` MB, each reading an update and the state and
writing the state. Saving variants save it once, after the first of them, so a unit is the stretch from one
save to the next:

- none: never saved
- every_n_sync: copied, serialised with ``numpy.save`` to a file, which then takes the place of the last one,
  while the work waits (``torch.save`` in a training or serving loop)
- every_n_async: copied while the work waits; a thread serialises and writes while it goes on; the unit ends
  when the file is whole, so a write that takes longer than the steps is waited for (``async_save`` in
  torch.distributed.checkpoint)

The file isn't forced to the disk (no fsync, as in ``torch.save``): a process can recover, a machine might
not. What is measured is serialising and the page cache; the device only where writing back can't keep up.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance
from flashperf.state_file import StateFile

_BYTES_PER_ELEMENT = 4


def _elements(case: Case) -> int:
    return case["megabytes"] * 1_000_000 // _BYTES_PER_ELEMENT


def make_inputs(case: Case) -> Arrays:
    """``start`` and ``update``, float32, with an offset and outliers."""
    rng = np.random.default_rng(case.seed)
    start, update = rng.standard_normal((2, _elements(case)), np.float32)
    start[:: max(1, start.size // 7)] *= 8
    return {"start": start, "update": update / 8 + np.float32(0.01)}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """``state`` after all steps; where it is saved, ``restored``: what the file holds, a step after start."""
    spec = ArraySpec((_elements(case),), "f32")
    return {"state": spec} if case.variant == "none" else {"state": spec, "restored": spec}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64"""
    start, update = (inputs[name].astype(np.float64) for name in ("start", "update"))
    return {"state": start + case["steps"] * update, "restored": start + update}


class _Saver:
    """Saves copies of a state; the folder and the thread go when this does."""

    def __init__(self, state: np.ndarray) -> None:
        self._copy = aligned_empty(state.shape, "f32")
        self._take = native.prepare("copy_f32", state, self._copy)
        self.file = StateFile(suffix=".npy")
        self._writer = ThreadPoolExecutor(1)

    def _write(self) -> None:
        self.file.write(lambda file: np.save(file, self._copy))

    def save(self) -> None:
        """Copy and write, and return when the file is whole."""
        self._take()
        self._write()

    def start(self) -> Callable[[], None]:
        """Copy and begin to write; the returned call waits for the file and raises what went wrong."""
        self._take()
        return self._writer.submit(self._write).result


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    state, update = outputs["state"], inputs["update"]
    first = native.prepare("add_f32", inputs["start"], update, state)
    step = native.prepare("accumulate_f32", state, update)
    others = native.Sequence([step] * (case["steps"] - 1))  # without the interpreter lock: a writer can go on
    if case.variant == "none":
        return native.Sequence([first] + [step] * (case["steps"] - 1))
    saver, restored = _Saver(state), outputs["restored"]

    def restore() -> None:
        """Read the file back where that is asked for, by a poisoned output: never while timed."""
        if np.isnan(restored[0]):
            restored[...] = np.load(saver.file.path)

    def waited_for() -> None:
        first()
        saver.save()
        others()
        restore()

    def beside() -> None:
        first()
        wait = saver.start()
        others()
        wait()
        restore()

    return waited_for if case.variant == "every_n_sync" else beside


def tolerance(case: Case) -> Tolerance:
    """Each step rounds the state once."""
    u, steps = UNIT_ROUNDOFF["f32"], case["steps"]
    return Tolerance(
        relative=2 * (steps + 1) * u,
        absolute=2 * steps * 4 * u,
        reason=f"twice {steps} float32 roundings of a state that passes through values of about 4",
    )


def cost(case: Case) -> Cost:
    """Updates, the copy, and one pass over it to write the file."""
    n, steps = _elements(case), case["steps"]
    size = n * _BYTES_PER_ELEMENT
    work = Cost(steps * n, 2 * steps * size, steps * size, launches=steps)
    if case.variant == "none":
        return work
    saving = {"bytes_read": 2 * size, "bytes_written": size, "bytes_transferred": size, "syncs": 1}
    return work + Cost(0, launches=1, **saving)


def ideal_bytes(case: Case) -> int:
    """The state and the update read once and the state written once, if it all fitted into registers."""
    return 3 * _elements(case) * _BYTES_PER_ELEMENT


MECHANISM = Mechanism(
    name="checkpoint",
    question="What does it cost to save the state every n steps, waiting for it or not?",
    claims=("B10",),
    variants={"none": ("cpu",), "every_n_sync": ("cpu",), "every_n_async": ("cpu",)},
    standard="none",
    flash="every_n_sync",
    dtypes=("f32",),
    test_sizes=[{"megabytes": 1, "steps": 1}, {"megabytes": 1, "steps": 5}],
    bench_sizes=[{"megabytes": 1, "steps": 16}, {"megabytes": 1, "steps": 128}],
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    tolerance=tolerance,
    ideal_bytes=ideal_bytes,
    bind={"cpu": bind_cpu},
)
