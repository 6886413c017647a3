"""What the small cases of the contract don't reach: several blocks per program, full parts, extreme and empty rows."""

from __future__ import annotations

import numpy as np
import pytest

from flashperf import registry
from flashperf.dtypes import aligned_empty, poison
from flashperf.problem import Problem
from flashperf.records import Case

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

from triton_bounds import interpreter_fault, watched  # noqa: E402

from flashperf.kernels import attention, fusion, quantization  # noqa: E402
from flashperf.kernels._launch import Launch  # noqa: E402

pytestmark = pytest.mark.skipif(bool(interpreter_fault()), reason=interpreter_fault() or "none")
interpreted = pytest.mark.skipif(
    not torch.__version__ or torch.cuda.is_available(), reason="tensors of the CPU are for the interpreter"
)


@pytest.mark.parametrize(
    "name, variant, sizes",
    [
        ("launch", "persistent", {"n": 8 * 1024 + 5, "chunks": 4}),  # more blocks than programs
        ("overfusion", "split_k", {"m": 3, "d": 33, "f": 200}),  # all parts have terms, the last fewer
    ],
    ids=["persistent", "split_k"],
)
def test_larger_sizes_are_right(name: str, variant: str, sizes: dict[str, int]) -> None:
    mechanism = registry.mechanism(name)
    case = Case.of(name, variant, "triton", "f32", sizes)
    inputs = mechanism.make_inputs(case)
    reference = mechanism.reference(case, {key: array.copy() for key, array in inputs.items()})
    problem = Problem(mechanism, case, inputs, mechanism.outputs(case), reference)
    call, bound, outputs = problem.bind()
    call()
    assert problem.check(call, bound, outputs).passed


@interpreted
@pytest.mark.parametrize("variant", ["fused", "split"])
@pytest.mark.parametrize("offset", [200.0, -200.0])
def test_large_logits_neither_overflow_nor_vanish(variant: str, offset: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 37)).astype(np.float32) + np.float32(offset)
    weight = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    share = weight / weight.sum(1, keepdims=True)
    for op, expected in (("softmax", share), ("cross_entropy", -np.log(share[:, 5]))):
        y = aligned_empty(expected.shape, "f32")
        poison(y)
        arrays = {"x": x, "y": y, **fusion.scratch(op, variant, "f32", 3, 37)}
        named = {name: torch.from_numpy(array) for name, array in arrays.items()}
        named["target"] = torch.full((3,), 5, dtype=torch.int32)
        for launch in fusion.launches(variant, op, named):
            launch.run()
        assert np.allclose(y, expected, rtol=1e-4, atol=1e-4)


@interpreted
def test_a_row_of_zeros_has_the_scale_one() -> None:
    x, q, scale = torch.zeros(2, 5), torch.full((2, 5), 9, dtype=torch.int8), torch.full((2,), float("nan"))
    quantization.rows_launch(x, q, scale).run()
    assert scale.tolist() == [1.0, 1.0]
    assert not q.any()


def _windowed(slot: list[int], position: list[int], t: int, window: int) -> tuple[Launch, torch.Tensor]:
    torch.manual_seed(0)
    m, e = len(slot), 16
    named = {"q": torch.randn(m, 1, e), "k": torch.randn(2, 1, t, e), "v": torch.randn(2, 1, t, e)}
    y = torch.full((m, 1, e), float("nan"))
    index = {
        "slot": torch.tensor(slot, dtype=torch.int32),
        "position": torch.tensor(position, dtype=torch.int32),
    }
    (launch,) = attention.launches("window", {**named, **index, "y": y}, scale=0.25, window=window)
    return launch, y


@interpreted
def test_rows_without_a_slot_or_a_position_are_zeros() -> None:
    launch, y = _windowed([0, -1, 1, 2, 0], [3, 3, 3, 3, -1], t=40, window=4)
    launch.run()
    assert torch.isfinite(y).all()
    assert [bool(row.any()) for row in y] == [True, False, True, False, False]


@interpreted
def test_a_window_skips_the_blocks_outside_it() -> None:
    accesses = []
    for t in (128, 512):
        launch, _ = _windowed([0], [t - 1], t, window=8)
        with watched(launch) as watch:
            launch.run()
        accesses.append(watch.accesses)
    assert accesses[0] == accesses[1]
