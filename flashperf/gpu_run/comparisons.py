"""Stage: our kernels beside what a library makes of the same inputs, named with its version and flags.

Both sides are checked against float64 before they are timed; then they take turns in double blocks on the device's
clock. Without a GPU ours are checked at tiny sizes, and nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import registry
from flashperf.backends import available
from flashperf.blocks import Block, BlockRunner
from flashperf.errors import UserError
from flashperf.gpu.clock import DeviceClock, all_clocks, clock_for, probe_for
from flashperf.gpu.verdicts import explain
from flashperf.gpu_run.baselines import BASELINES, Baseline
from flashperf.problem import Problem, load_problem
from flashperf.records import Case
from flashperf.stats import ratio_interval
from flashperf.timers import calibrate
from flashperf.units import rate

_LEAST_SAMPLE_S = 2e-3
_FEWEST_BLOCKS, _MOST_BLOCKS = 3, 12
_SEED = 0


@dataclass(frozen=True)
class Pair:
    """A case of ours, its baseline, the share of that one's speed to reach (None: none was set), a tiny case."""

    case: str
    baseline: str
    aim: float | None
    tiny: str


def _for_backends(
    template: str, tiny: str, baseline: str, aim: float | None, triton_aim: float | None = None
) -> list[Pair]:
    backends = ("cuda", "triton")
    return [
        Pair(template.format(b), baseline, aim if b == "cuda" else triton_aim, tiny.format(b))
        for b in backends
    ]


_GEMM, _SMALL_GEMM = "m=4096-k=4096-n=4096", "m=17-k=96-n=130"
_SEQUENCE = "heads=8-rows=2048-keys=2048-head_dim=128-window=512"
_SHORT = "heads=2-rows=7-keys=33-head_dim=6-window=5"
_ROWS, _FEW = "rows=8192-cols=4096", "rows=5-cols=130"

PAIRS: tuple[Pair, ...] = (
    *_for_backends(
        f"precision/bf16/{{}}/f32/{_GEMM}",
        f"precision/bf16/{{}}/f32/{_SMALL_GEMM}",
        "matmul_bf16",
        0.40,
        0.65,
    ),
    *_for_backends(
        f"precision/f32/{{}}/f32/{_GEMM}", f"precision/f32/{{}}/f32/{_SMALL_GEMM}", "matmul_f32", 0.65
    ),
    *_for_backends(
        f"precision/tf32/{{}}/f32/{_GEMM}", f"precision/tf32/{{}}/f32/{_SMALL_GEMM}", "matmul_tf32", None
    ),
    *_for_backends(
        f"attention/online/{{}}/bf16/{_SEQUENCE}", f"attention/online/{{}}/bf16/{_SHORT}", "sdpa", 0.30, 0.50
    ),
    *_for_backends(
        "launch/whole/{}/f32/n=67108864-chunks=64", "launch/whole/{}/f32/n=1000-chunks=64", "copy", 0.90
    ),
    *(
        pair
        for op in ("swiglu", "residual_rmsnorm", "softmax")
        for pair in _for_backends(
            f"fusion/fused/{{}}/f32/op={op}-{_ROWS}",
            f"fusion/fused/{{}}/f32/op={op}-{_FEW}",
            "copy",
            0.90,
            0.85,
        )
    ),
)


@dataclass
class Row:
    """What became of a pair. share: the baseline's time per unit of work over ours; times in seconds."""

    case: str
    baseline: str
    aim: float | None
    problem: str = ""
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    ours_s: float | None = None
    baseline_s: float | None = None
    rate: str = ""
    blocks: int = 0
    launches: int | None = None
    timer: str = ""
    clocks: dict[str, Any] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)


def compare(pair: Pair, tiny: bool, budget_s: float) -> Row:
    """Check and time one pair. What fails is a row that says why."""
    case = Case.parse(pair.tiny if tiny else pair.case)
    baseline = BASELINES[pair.baseline]
    row = Row(case.id, baseline.label(), pair.aim)
    try:
        mechanism = registry.mechanism(case.mechanism)
        problem = load_problem(mechanism, case, emulated=tiny)
        call, inputs, outputs = problem.bind()
        call()
        problem.check(call, inputs, outputs)
        if not tiny:
            _time(row, problem, baseline, call, budget_s)
    except UserError as error:
        row.problem = str(error).splitlines()[0]
    except Exception as error:  # a kernel or library that breaks is one row, not the end of the table
        row.problem = f"{type(error).__name__}: {error}".splitlines()[0]
    return row


def _time(row: Row, problem: Problem, baseline: Baseline, call: Callable[[], None], budget_s: float) -> None:
    other = baseline.build(problem)
    other_call = other.call
    if other.result is not None:
        _check_baseline(other.result(), next(iter(problem.reference.values())))
    row.launches = count_launches(call)
    if row.launches not in (None, problem.cost.launches):
        raise UserError(f"{row.launches} kernels ran, declared were {problem.cost.launches}")
    clock = clock_for(problem.case.backend)
    if not isinstance(clock, DeviceClock):
        raise UserError(f"no device to time {problem.case.id} on: {available('cuda')}")
    calls = tuple(calibrate(side, clock, _LEAST_SAMPLE_S)[0] for side in (call, other_call))
    rng = np.random.default_rng(_SEED)
    sides = (lambda: call, lambda: other_call)
    runner = BlockRunner(sides, (calls[0], calls[1]), rng, None, clock, probe_for(clock))
    end = time.monotonic() + budget_s
    blocks: list[Block] = []
    while len(blocks) < _MOST_BLOCKS and (len(blocks) < _FEWEST_BLOCKS or time.monotonic() < end):
        blocks.append(runner.run())
    # The baseline may move other bytes (a copy): its time is taken per unit of work.
    scale = np.log(_work(problem, baseline) / other.work)
    share = ratio_interval([block.log_ratio + scale for block in blocks])
    row.share, row.share_low, row.share_high = share.value, share.low, share.high
    row.ours_s = float(np.median([s.wall_s for block in blocks for s in block.of("A")]))
    row.baseline_s = float(np.median([s.wall_s for block in blocks for s in block.of("B")]))
    row.rate = rate(_work(problem, baseline) / row.ours_s, "B/s" if baseline.per_byte else "FLOP/s")
    row.blocks, row.timer = len(blocks), clock.name
    times = all_clocks(call, clock.device)
    row.clocks, row.disagreements = asdict(times), explain(times)
    if problem.case.backend == "triton":
        from flashperf.kernels._clocks import median_by_do_bench, why_they_differ

        row.clocks["do_bench_s"] = theirs_s = median_by_do_bench(call)
        row.disagreements += why_they_differ(times, theirs_s)


def count_launches(call: Callable[[], object]) -> int | None:
    """Kernels that a call launches, as torch's profiler sees them; None where it sees none (no CUPTI)."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    on_device = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return len([e for e in on_device if not e.name.startswith(("Mem", "gpu_"))]) or None


def _work(problem: Problem, baseline: Baseline) -> float:
    return float(problem.cost.bytes if baseline.per_byte else problem.cost.flops)


def _check_baseline(got: np.ndarray, reference: np.ndarray) -> None:
    """Raises UserError for a baseline that computes something else: a share of it would mean nothing."""
    error = float(np.linalg.norm(got - reference) / np.linalg.norm(reference))
    if not error < 2e-2:
        raise UserError(f"the baseline is off by {error:.1e} of the norm: it computes something else")


def run(pairs: Sequence[Pair], tiny: bool, budget_s: float, out: Path) -> list[Row]:
    """Every pair, the time shared equally; the file is rewritten after each."""
    rows: list[Row] = []
    end = time.monotonic() + budget_s
    for number, pair in enumerate(pairs):
        left_s = max(0.0, end - time.monotonic()) / (len(pairs) - number)
        rows.append(compare(pair, tiny, left_s))
        print(_line(rows[-1]), flush=True)
        partial = out / "comparison.json.part"
        partial.write_text(json.dumps({"tiny": tiny, "rows": [asdict(row) for row in rows]}, indent=1))
        partial.replace(out / "comparison.json")
    return rows


def _line(row: Row) -> str:
    if row.problem:
        return f"{row.case}: {row.problem}"
    if row.share is None:
        return f"{row.case}: right; not timed"
    aim = f", aim {row.aim:.2f}" if row.aim else ""
    return f"{row.case}: {row.share:.2f} [{row.share_low:.2f}, {row.share_high:.2f}] of {row.baseline}{aim}"


def main() -> int:
    """0 if every pair was checked (and timed, on a GPU)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("tiny", "full"), required=True)
    parser.add_argument("--budget", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    tiny = options.size == "tiny"
    pairs = [pair for pair in PAIRS if not (tiny and "/triton/" in pair.case)]
    rows = run(pairs, tiny, options.budget, options.out)
    failed = [row for row in rows if row.problem]
    print(f"{len(rows) - len(failed)} of {len(rows)} pairs {'checked' if tiny else 'compared'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
