"""One rank: a Llama-like block on a batch, split over the ranks by sequence, by width, or by position.

    torchrun --nproc-per-node 2 -m flashperf.scenarios.parallel_worker

Without torchrun, ``ranks.run_ranks`` starts it. gloo on CPUs, NCCL where every rank has a GPU. Rank 0 prints JSON
lines. The backend's name is the only difference; the NCCL path was never run.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional

from flashperf.worker import die_with_parent

WIDTH, HEADS, HIDDEN = 256, 4, 688
TIMEOUT_S = 60
STRATEGIES = ("data", "tensor", "sequence")


@dataclass
class Weights:
    """A block's weights, [out, in]: q, k, v and the output of attention; gate, up and down of the MLP."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    @staticmethod
    def random(seed: int, dtype: torch.dtype, device: torch.device) -> Weights:
        """The same on every rank."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [(WIDTH, WIDTH)] * 4 + [(HIDDEN, WIDTH)] * 2 + [(WIDTH, HIDDEN)]
        made = [torch.randn(shape, generator=generator) / shape[1] ** 0.5 for shape in shapes]
        return Weights(*(weight.to(device, dtype) for weight in made))

    def shard(self, rank: int, world: int) -> Weights:
        """Rows of what comes in and columns of what goes out: heads and hidden units of one rank."""

        def own(weight: torch.Tensor, axis: int) -> torch.Tensor:
            return weight.chunk(world, axis)[rank].contiguous()

        q, k, v, gate, up = (own(weight, 0) for weight in (self.q, self.k, self.v, self.gate, self.up))
        return Weights(q, k, v, own(self.out, 1), gate, up, own(self.down, 1))


class Communication:
    """Collectives that are timed: what a call spends in them."""

    def __init__(self, device: torch.device) -> None:
        self.seconds, self._device = 0.0, device

    def timed(self, collective: Callable[..., Any], *arguments: Any) -> None:
        """Run a collective and add what it took, waiting for others included."""
        self._sync()
        begin = time.perf_counter()
        collective(*arguments)
        self._sync()
        self.seconds += time.perf_counter() - begin

    def gather(self, part: torch.Tensor, axis: int) -> torch.Tensor:
        """The parts of all ranks, joined."""
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        self.timed(dist.all_gather, parts, part.contiguous())
        return torch.cat(parts, axis)

    def _sync(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def attention(
    x: torch.Tensor, weights: Weights, keys_of: Callable[..., Any] | None = None, first: int = 0
) -> torch.Tensor:
    """Causal attention of x [batch, rows, width]; ``keys_of`` completes keys and values, ``first``: x's position."""
    heads = weights.q.shape[0] // (WIDTH // HEADS)
    q, k, v = (
        functional.linear(x, w).unflatten(-1, (heads, -1)).transpose(1, 2)
        for w in (weights.q, weights.k, weights.v)
    )
    if keys_of is None:
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        k, v = keys_of(k), keys_of(v)
        seen = (
            torch.arange(k.shape[2], device=x.device)
            <= torch.arange(q.shape[2], device=x.device)[:, None] + first
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return functional.linear(mixed.transpose(1, 2).flatten(2), weights.out)


def mlp(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """SwiGLU."""
    hidden = functional.silu(functional.linear(x, weights.gate)) * functional.linear(x, weights.up)
    return functional.linear(hidden, weights.down)


def norm(x: torch.Tensor) -> torch.Tensor:
    """RMSNorm without a weight."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def whole(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The block on one rank."""
    x = x + attention(norm(x), weights)
    return x + mlp(norm(x), weights)


def split(strategy: str, x: torch.Tensor, weights: Weights, talk: Communication) -> torch.Tensor:
    """The block on all ranks; every rank ends with the whole result.

    data: each rank has its sequences. tensor: each has its heads and hidden units, sums are exchanged twice.
    sequence: each has its positions, keys and values are exchanged once.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    if strategy == "data":
        return talk.gather(whole(x.chunk(world, 0)[rank], weights), 0)
    if strategy == "tensor":
        for part in (attention, mlp):
            change = part(norm(x), weights)
            talk.timed(dist.all_reduce, change)
            x = x + change
        return x
    own = x.chunk(world, 1)[rank]
    own = own + attention(norm(own), weights, lambda part: talk.gather(part, 2), rank * own.shape[1])
    return talk.gather(own + mlp(norm(own), weights), 1)


def check(strategy: str, x: torch.Tensor, mine: Weights, everything: Weights, talk: Communication) -> float:
    """The largest error of a strategy as a fraction of the largest value in float64. Raises if it is wrong."""
    wide = Weights(*(weight.double() for weight in vars(everything).values()))
    wanted = whole(x.double(), wide)
    error = float((split(strategy, x, mine, talk).double() - wanted).abs().max() / wanted.abs().max())
    if not error < 1e-4:
        raise RuntimeError(f"{strategy} parallel gives another result than one rank: error {error:.2g}")
    return error


def main() -> None:
    """Meet the others, check every strategy, time them in turn beside one rank alone, print what came out."""
    die_with_parent()
    options = json.loads(os.environ.get("FLASHPERF_OPTIONS", "{}"))
    device = _join()
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.get("seed", 0))
    everything = Weights.random(options.get("seed", 0), torch.float32, device)
    shard = everything.shard(dist.get_rank(), dist.get_world_size())
    with torch.no_grad():
        for length in options.get("lengths", (128, 512)):
            generator = torch.Generator().manual_seed(length)
            batch = options.get("batch", dist.get_world_size())
            x = torch.randn(batch, length, WIDTH, generator=generator).to(device)
            for strategy in STRATEGIES:
                mine = shard if strategy == "tensor" else everything
                error = check(strategy, x, mine, everything, Communication(device))
                _print({"kind": "checked", "length": length, "strategy": strategy, "error": error})
            for _ in range(options.get("rounds", 3)):
                for strategy in rng.permutation(STRATEGIES):
                    mine = shard if strategy == "tensor" else everything
                    times = _timed_pair(str(strategy), x, mine, everything, device, bool(rng.integers(2)))
                    _print(
                        {
                            "kind": "times",
                            "length": length,
                            "strategy": str(strategy),
                            "batch": batch,
                            **times,
                        }
                    )
    dist.destroy_process_group()


def _join() -> torch.device:
    """Meet the other ranks. Raises if one does not come within the limit."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = "nccl" if gpus >= world else "gloo"
    meeting = os.environ.get("FLASHPERF_RENDEZVOUS")
    dist.init_process_group(
        backend,
        init_method=f"file://{meeting}" if meeting else "env://",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    if backend == "gloo":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    return device


def _timed_pair(
    strategy: str,
    x: torch.Tensor,
    mine: Weights,
    everything: Weights,
    device: torch.device,
    split_first: bool,
) -> dict[str, float]:
    """Medians of three calls, of the strategy and of one rank alone, in either order: whole call and in collectives.

    While rank 0 works alone the others wait at a barrier.
    """
    results: dict[str, float] = {}
    for name in ("split", "alone") if split_first else ("alone", "split"):
        talk, whole_s, talking_s = Communication(device), [], []
        for _ in range(4):
            dist.barrier()
            talk.seconds = 0.0
            begin = time.perf_counter()
            if name == "split":
                split(strategy, x, mine, talk)
            elif dist.get_rank() == 0:
                whole(x, everything)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            whole_s.append(time.perf_counter() - begin)
            talking_s.append(talk.seconds)
        results[f"{name}_s"] = statistics.median(whole_s[1:])
        results[f"{name}_talking_s"] = statistics.median(talking_s[1:])
    dist.barrier()
    return results


def _print(line: dict[str, Any]) -> None:
    if dist.get_rank() == 0:
        print(json.dumps(line), file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
