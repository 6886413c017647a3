"""That a variant takes the path it is named after: results alone can't tell, they are the same on every path."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf import native, registry
from flashperf.measure import bind_case
from flashperf.mechanisms import checkpoint, overlap, preprocessing, transfer
from flashperf.pipeline import checkpoint as saving
from flashperf.pipeline.batching import Decode, Iteration, Prefill, Schedule
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.engine import CpuEngine
from flashperf.pipeline.streaming import StagedWeights
from flashperf.problem import load_problem
from flashperf.records import Arrays, Case

LAYERS = {"layers": 4, "m": 2, "k": 256, "n": 130}


def bound(name: str, variant: str, sizes: dict[str, int]) -> tuple[Case, Arrays, Arrays]:
    """A case with its inputs and outputs."""
    case = Case.of(name, variant, "cpu", "f32", sizes)
    _, inputs, outputs = load_problem(registry.mechanism(name), case).bind()
    return case, inputs, outputs


@pytest.mark.parametrize("variant", ["resident", "streamed", "streamed_tiles"])
def test_transfer_makes_as_many_copies_as_its_cost_says(variant: str) -> None:
    case, inputs, outputs = bound("transfer", variant, LAYERS)
    call = transfer.bind_cpu(case, inputs, outputs)
    assert isinstance(call, native.Sequence)
    assert len(call) == transfer.MECHANISM.cost(case).launches


def test_neighbouring_layers_are_copied_into_different_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    case, inputs, outputs = bound("overlap", "overlapped", LAYERS)
    targets: list[int] = []
    prepare = native.prepare

    def watched(kernel: str, *arrays: np.ndarray, **scalars: float) -> Any:
        if kernel == "stage_f32":
            targets.append(arrays[1].ctypes.data)
        return prepare(kernel, *arrays, **scalars)

    monkeypatch.setattr(native, "prepare", watched)
    overlap.bind_parts(case, inputs, outputs)
    assert len(set(targets)) == 2
    assert targets == targets[:2] * 2, "in turn"


def test_only_planned_is_replayed_natively_and_only_eager_binds_in_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = {
        variant: bind_case(registry.mechanism("graph"), Case.of("graph", variant, "cpu", "f32", sizes)).call
        for sizes in [{"ops": 5, "n": 8}]
        for variant in ("planned", "issued", "eager")
    }
    assert isinstance(calls["planned"], native.Sequence)
    assert not isinstance(calls["issued"], native.Sequence)
    prepared: list[str] = []
    library = type(native.library())
    prepare = library.prepare

    def counted(self: Any, kernel: str, *arrays: Any, **scalars: Any) -> Any:
        prepared.append(kernel)
        return prepare(self, kernel, *arrays, **scalars)

    monkeypatch.setattr(library, "prepare", counted)
    for variant, expected in (("planned", 0), ("issued", 0), ("eager", 5)):
        prepared.clear()
        calls[variant]()
        assert len(prepared) == expected, variant


def test_a_synchronous_save_is_written_before_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    case, inputs, outputs = bound("checkpoint", "every_n_sync", {"megabytes": 1, "steps": 3})
    written: list[float] = []
    monkeypatch.setattr(checkpoint._Saver, "_write", lambda self: written.append(float(outputs["state"][0])))
    outputs["restored"][0] = 0.0  # nobody asks for it
    checkpoint.bind_cpu(case, inputs, outputs)()
    assert written == [inputs["start"][0] + inputs["update"][0]]


def test_an_asynchronous_save_is_waited_for_after_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    case, inputs, outputs = bound("checkpoint", "every_n_async", {"megabytes": 1, "steps": 3})
    waited: list[float] = []
    monkeypatch.setattr(
        checkpoint._Saver, "start", lambda self: lambda: waited.append(float(outputs["state"][0]))
    )
    outputs["restored"][0] = 0.0
    checkpoint.bind_cpu(case, inputs, outputs)()
    assert waited == [outputs["state"][0]], "once, when all steps were done"
    assert waited[0] != inputs["start"][0] + inputs["update"][0]


def test_rebuilt_masks_are_made_by_array_operations_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rebuilt: list[str] = []
    monkeypatch.setattr(preprocessing, "rebuild", lambda lengths, mask: rebuilt.append("rebuilt"))
    for variant in ("cached", "native", "rebuilt"):
        case = Case.of("preprocessing", variant, "cpu", "f32", {"tasks": 2, "width": 8})
        inputs = preprocessing.make_inputs(case)
        preprocessing.bind_cpu(case, inputs, {"mask": np.zeros((16, 8), np.float32)})()
    assert rebuilt == ["rebuilt"]


def test_a_state_that_is_being_written_does_not_follow_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, written = threading.Event(), []

    def write(self: saving.Checkpoint, state: saving.State) -> None:
        go_on.wait(10)
        written.append(state)

    monkeypatch.setattr(saving.AsyncCheckpoint, "_write", write)
    cache, position = np.zeros((1, 1, 8, 2), np.float32), np.array([3])
    save = saving.AsyncCheckpoint([cache], every_n=1)
    save.after_step(1, position)
    cache += 1
    position += 1
    go_on.set()
    save.finish()
    assert written[0]["position"].tolist() == [3]
    assert not written[0]["cache0"].any()
    save.close()


def test_waiting_at_the_end_of_a_run_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(saving, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    save = saving.AsyncCheckpoint([np.zeros((1, 1, 8, 2), np.float32)], every_n=1)
    save.after_step(1, np.array([3]))
    assert save.wait_s == 1
    save.finish()
    assert save.wait_s == 2
    save.close()


@pytest.mark.parametrize(("transfer_level", "sets"), [("streamed", 1), ("streamed_overlapped", 2)])
def test_every_segment_is_staged_anew_in_as_many_sets_as_the_level_has(
    transfer_level: str, sets: int
) -> None:
    weight = np.zeros(64, np.float32)
    names: list[str] = []
    copies: list[str] = []

    class Named:
        def state(self, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
            names.append(name)
            return np.zeros(shape, np.float32)

    store = SimpleNamespace(engine=None, calibration=None, _source={}, _made={})
    store.plain = lambda name, dtype, columns: weight
    segment = SimpleNamespace(calls=[], copies=copies)
    lower = SimpleNamespace(segments=[segment], bind=lambda kernel, *arrays: kernel)
    staged = StagedWeights(store, Named(), transfer_level, lower)  # type: ignore[arg-type]
    for number in range(4):
        staged.begin(number)
        for _ in range(2):  # asked for twice, copied once
            staged.plain("w", "f32", slice(None))
    assert copies == ["stage_f32"] * 4
    assert names == [f"staged{number % sets}.0" for number in range(4)]


def test_what_outlasts_a_step_is_not_given_back_to_the_system() -> None:
    buffers = Buffers(CpuEngine(), "fresh")
    kept = buffers.state("cache", (4, 4), "f32")
    assert kept is buffers.of("reused").state("cache", (4, 4), "f32")


def test_rows_that_pad_a_decoding_batch_are_counted_as_computed() -> None:
    decode = Decode((0, 1, 2), (0, 1, 2), (0, 0, 0), rows=4)
    turn = Iteration(0, (Prefill((0, 1, 2), (0, 1, 2), width=5),), decode)
    assert Schedule((turn,), 4).rows(np.array([5, 2, 1])) == (8 + 3, 15 + 4)


def test_padding_is_zeros_and_real_rows_stand_first() -> None:
    x = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    first, end = np.array([0, 3], np.int32), np.array([3, 5], np.int32)
    padded = np.full((6, 2), np.nan, np.float32)
    native.prepare("pad_rows", x, first, end, padded)()
    np.testing.assert_array_equal(padded, [*x[:3], *x[3:], [0, 0]])


def test_a_static_scale_divides_by_itself() -> None:
    values = np.array([[-127, -100, -1, 0, 1, 50, 99, 127]])
    scale = 0.03
    q = np.full(values.shape, 77, np.int8)
    native.prepare("quantize_rows_static_f32", (values * scale).astype(np.float32), q, scale=scale)()
    np.testing.assert_array_equal(q, values)
    native.prepare("quantize_rows_static_f32", np.full(values.shape, 9, np.float32), q, scale=scale)()
    assert (q == 127).all(), "what is beyond the scale is clamped"
