"""What binds and checks Triton launches: bad arrays, memory, the autotuner's record, the interpreter's own faults."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

from flashperf.backends import available
from flashperf.errors import UserError

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton_bounds import OutOfBoundsError, interpreter_fault, watched  # noqa: E402

from flashperf.kernels import _launch, _products, tiling  # noqa: E402
from flashperf.kernels._launch import Launch, TritonCall  # noqa: E402
from flashperf.kernels.quantization import round_to_even  # noqa: E402

pytestmark = pytest.mark.skipif(bool(interpreter_fault()), reason=interpreter_fault() or "none")

INTERPRETED = bool(available("triton"))
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="a GPU runs the kernels, not the interpreter")


@triton.jit
def copy_unmasked(x, y, BLOCK: tl.constexpr):
    """A mistake on purpose: no mask."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def copy_masked(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def plain_dot(a, b, y, N: tl.constexpr):
    """A product without the work-around of ``_products.dot``."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def rounded(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, round_to_even(tl.load(x + at)))


@needs_interpreter
@pytest.mark.parametrize("short", [0, 1], ids=["read", "written"])
def test_an_access_out_of_bounds_is_found(short: int) -> None:
    tensors = [torch.zeros(16), torch.zeros(16)]
    tensors[short] = torch.zeros(1024)[100:115]
    launch = Launch(copy_unmasked, (1,), tuple(tensors), {"BLOCK": 16})
    error = r"1 elements (read|written) outside"  # within the interpreter's own
    with pytest.raises(Exception, match=error), watched(launch):
        launch.run()
    assert issubclass(OutOfBoundsError, AssertionError)


@needs_interpreter
def test_masked_accesses_are_within_bounds() -> None:
    x, y = torch.arange(15.0), torch.zeros(15)
    launch = Launch(copy_masked, (1,), (x, y, 15), {"BLOCK": 16})
    with watched(launch) as watch:
        launch.run()
    assert watch.accesses == 30
    assert torch.equal(x, y)


@pytest.mark.parametrize("gap", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1]])
def test_arrays_with_gaps_are_rejected(gap: types.FunctionType) -> None:
    with pytest.raises(UserError, match=r"x is not C-contiguous: shape \(.*\), strides \("):
        _launch.tensor("x", gap(np.zeros((4, 6), np.float32)))


@needs_interpreter
def test_tensors_lie_on_the_arrays_memory() -> None:
    array = np.zeros(3, np.uint16)
    tensor = _launch.tensor("x", array)
    assert tensor.dtype == torch.bfloat16
    tensor[1] = 1.0
    assert array.tolist() == [0, 0x3F80, 0]


def test_scratch_is_poisoned() -> None:
    assert np.isnan(_launch.scratch((2, 3), "f32")).all()
    assert (_launch.scratch((4,), "i8") == -1).all()


def test_e4m3_operands_keep_their_scale() -> None:
    from flashperf.kernels.precision import LARGEST_E4M3, fp8_operands

    x, w = np.array([[1.0, -4.0]], np.float32), np.array([[0.001], [0.002]], np.float32)
    operands, alpha = fp8_operands(x, w)
    assert operands["x"].dtype == operands["w"].dtype == torch.float8_e4m3fn
    assert float(operands["x"].float().abs().max()) == LARGEST_E4M3
    assert operands["w"].shape == (2, 1)
    product = (operands["x"].cpu().float() @ operands["w"].cpu().float()) * alpha
    assert float(product) == pytest.approx(-0.007, rel=0.1)


def test_int8_rounds_to_nearest_even_and_keeps_the_range() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.4, 1e9, -1e9, -127.6, 0.0, 3.49, *[0] * 4])
    y = np.full(16, 77, np.int8)
    x, written = _launch.tensor("x", values.astype(np.float32)), _launch.tensor("y", y)
    call = TritonCall([Launch(rounded, (1,), (x, written), {"N": 16})], [], [(y, written)])
    call()
    call.collect()
    assert y[:12].tolist() == [0, 2, 2, 0, -2, 126, 127, 127, -127, -127, 0, 3]


def bf16_dot_is_right() -> bool:
    """Whether ``tl.dot`` multiplies bf16 operands as numbers."""
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.standard_normal((16, 16)), dtype=torch.bfloat16) for _ in range(2))
    y = torch.zeros(16, 16)
    plain_dot[(1,)](a, b, y, 16)
    return bool(torch.allclose(y, a.float() @ b.float(), atol=1e-3))


@needs_interpreter
def test_the_interpreter_still_needs_its_bf16_products_widened() -> None:
    """Fails with the first Triton whose interpreter multiplies bf16: take WIDEN_BF16 out of _products.py then."""
    assert _products.WIDEN_BF16.value
    assert not bf16_dot_is_right(), f"Triton {triton.__version__} multiplies bf16: WIDEN_BF16 can go"


@needs_interpreter
def test_the_interpreter_takes_the_first_configuration_without_timing_any() -> None:
    x, w = torch.randn(5, 6), torch.randn(6, 7)
    y = torch.full((5, 7), float("nan"))
    call = TritonCall(tiling.launches("autotuned", {"x": x, "w": w, "y": y}), [], [])
    call()
    assert torch.allclose(y, x @ w, atol=1e-5)
    assert call.details == {}, "a choice without times is no tuning"


def test_the_autotuner_leaves_winner_and_losers_on_the_record() -> None:
    """With the times of a scripted run: on a GPU Triton's autotuner fills these fields itself."""
    fast, slow = triton.Config({"BLOCK_M": 128}, 8, 3), triton.Config({"BLOCK_M": 16}, 1, 1)
    kernel = types.SimpleNamespace(
        configs_timings={fast: [0.5, 0.4, 0.6], slow: [2.0, 1.9, 2.1]}, best_config=fast
    )
    call = TritonCall([Launch(kernel, (1,), ())], [], [])
    assert call.details["autotuned"] == str(fast)
    assert call.details["tried_s"] == {str(fast): 0.5e-3, str(slow): 2e-3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_autotuner_tries_the_shapes_of_the_operands_type(dtype: object) -> None:
    shapes = tiling.FMA_SHAPES if dtype == torch.float32 else tiling.SHAPES
    named = {"x": torch.zeros(2, 2, dtype=dtype)}
    kept = tiling._candidates(list(tiling.autotuned.configs), named)
    found = [c.kwargs | {"num_warps": c.num_warps, "num_stages": c.num_stages} for c in kept]
    assert all(one in shapes.values() for one in found)
    assert len(found) == len(shapes)


def fresh(code: str, **environment: str) -> str:
    """Standard output of a new interpreter."""
    import os

    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_interpreter
def test_kernels_are_interpreted_where_there_is_no_driver_whatever_the_environment() -> None:
    code = "import flashperf.kernels.tiling; import triton; print(triton.knobs.runtime.interpret)"
    assert fresh(code) == "True"
    assert fresh(code, TRITON_INTERPRET="0") == "False"


def test_the_package_of_kernels_imports_neither_torch_nor_triton() -> None:
    code = "import sys, flashperf.kernels; print({'torch', 'triton'} & set(sys.modules))"
    assert fresh(code) == "set()"
