"""Train the pipeline's small model on Python's documentation.

    python -m flashperf.pipeline.train [--seed 0] [--steps N] [--out DIR] [--threads N] [--first-stage K]

Writes `small.safetensors` (bfloat16), `training_curve.csv` and `model_card.json` to DIR, by default where the
package keeps them.

There are two stages: many steps on short windows, then few on long ones, without which RoPE fails beyond the
length it was trained on. A stage starts from the weights that the one before wrote, in bfloat16, with a fresh
optimizer, so that training can go on from a stage's start.

What is reproducible: the same seed, steps, thread count, torch version and CPU type give the same bytes. What
isn't: another CPU type, thread count or torch version sums in another order, and training amplifies that to
other weights of about the same quality. The recipe was chosen by looking at the held-out text; no checkpoint
was: the last step's weights are kept.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from flashperf.dtypes import from_bf16
from flashperf.pipeline import ngram, text
from flashperf.pipeline.config import SMALL
from flashperf.pipeline.torch_model import Model, bf16_weights, evaluate
from flashperf.pipeline.weights import load_weights, small_weights_path, write_safetensors

WEIGHTS = small_weights_path().name
CURVE, CARD = "training_curve.csv", "model_card.json"


@dataclass(frozen=True)
class Stage:
    """A number of steps with one schedule of the learning rate. `windows`, in positions, are taken in turn."""

    steps: int
    windows: tuple[int, ...]
    tokens_per_step: int
    rate: float
    warmup_steps: int


@dataclass(frozen=True)
class Recipe:
    """What decides the weights, beside the text and the machine."""

    seed: int = 0
    stages: tuple[Stage, ...] = (
        Stage(5000, (256, 256, 256, 512), tokens_per_step=2048, rate=0.003, warmup_steps=200),
        Stage(500, (256, 512, 1280, 1280), tokens_per_step=4096, rate=0.001, warmup_steps=50),
    )
    topics_share: float = 0.375  # of a batch's windows; the others are docstrings, which are 4x as much text
    dropout: float = 0.1
    weight_decay: float = 0.1
    clip: float = 1.0


@dataclass
class Progress:
    """What a run keeps from stage to stage: curve rows (step, train bpb, held-out bpb) and each stage's time."""

    curve: list[tuple[int, float, float]] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)


def train(recipe: Recipe, out: Path, first_stage: int = 0, report_every: int = 200) -> None:
    """Train and write all three files to `out`: weights and curve at every report, the card after each stage.

    With `first_stage` above 0, the stages before it are those whose files are in `out`.
    """
    progress = _read_progress(out, recipe, first_stage) if first_stage else Progress()
    for index in range(first_stage, len(recipe.stages)):
        torch.manual_seed(recipe.seed + index)
        model = Model(SMALL, recipe.dropout)
        if index:
            model.load_arrays(load_weights(out / WEIGHTS, SMALL))
        _train_stage(model, recipe, index, progress, out, report_every)
        card = json.dumps(model_card(model, recipe, progress), indent=2)
        (out / CARD).write_text(card + "\n", encoding="utf-8")
        print(card, flush=True)


def _train_stage(
    model: Model, recipe: Recipe, index: int, progress: Progress, out: Path, report_every: int
) -> None:
    """The steps of one stage. Its batches follow from the seed and the stage alone."""
    stage = recipe.stages[index]
    before = sum(earlier.steps for earlier in recipe.stages[:index])
    training, heldout = text.training_text(), _tokens(text.heldout_bytes())
    parts = _tokens(training.topics), _tokens(training.docstrings)
    optimizer = _optimizer(model, recipe, stage)
    sampler = torch.Generator().manual_seed(recipe.seed + index)
    started, losses = time.perf_counter(), []
    for step in range(1, stage.steps + 1):
        batch = make_batch(parts, stage, step, recipe.topics_share, sampler)
        losses.append(_step(model, optimizer, batch, rate_at(step, stage), recipe.clip))
        if step % report_every and step != stage.steps:
            continue
        heldout_bpb, _ = evaluate(model, heldout, window=256)
        progress.curve.append((before + step, float(np.mean(losses)), heldout_bpb))
        losses.clear()
        print(_report(*progress.curve[-1], time.perf_counter() - started), flush=True)
        _write_curve(out / CURVE, progress.curve)
        write_safetensors(out / WEIGHTS, bf16_weights(model), {"seed": str(recipe.seed)})
    progress.wall_s.append(round(time.perf_counter() - started, 1))


def _read_progress(out: Path, recipe: Recipe, stages: int) -> Progress:
    """What the first `stages` stages left in `out`."""
    last_step = sum(stage.steps for stage in recipe.stages[:stages])
    with (out / CURVE).open(newline="", encoding="utf-8") as file:
        rows = [
            (int(step), float(train), float(heldout)) for step, train, heldout in list(csv.reader(file))[1:]
        ]
    if not rows or rows[-1][0] != last_step:
        raise SystemExit(f"{out / CURVE} doesn't end at step {last_step}, where stage {stages} starts")
    return Progress(rows, json.loads((out / CARD).read_text(encoding="utf-8"))["wall_s"][:stages])


def model_card(model: Model, recipe: Recipe, progress: Progress) -> dict[str, object]:
    """What the model is and how good, measured with the weights as they are written: in bfloat16."""
    rounded = Model(SMALL)
    rounded.load_arrays({name: from_bf16(bits) for name, bits in bf16_weights(model).items()})
    training, heldout = text.training_bytes(), text.heldout_bytes()
    figures: dict[str, float] = {}
    for window in (256, 1024):
        bpb, accuracy = evaluate(rounded, _tokens(heldout), window)
        figures |= {f"heldout_bpb_{window}": round(bpb, 4), f"heldout_accuracy_{window}": round(accuracy, 4)}
    return {
        "model": asdict(SMALL) | {"parameters": SMALL.parameters()},
        "recipe": asdict(recipe),
        **figures,
        "order5_bpb": round(ngram.ByteModel(training, order=5).bits_per_byte(heldout), 4),
        "wall_s": progress.wall_s,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "training_bytes": len(training),
        "training_sha256": hashlib.sha256(training).hexdigest(),
        "heldout_bytes": len(heldout),
        "heldout_sha256": hashlib.sha256(heldout).hexdigest(),
    }


def _tokens(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).astype(np.int64))


def make_batch(
    parts: tuple[torch.Tensor, torch.Tensor],
    stage: Stage,
    step: int,
    topics_share: float,
    sampler: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of both parts of the text and the bytes that follow each position, int64 [b, t]."""
    window = stage.windows[step % len(stage.windows)]
    rows = stage.tokens_per_step // window
    from_topics = round(rows * topics_share)
    windows = []
    for tokens, count in zip(parts, (from_topics, rows - from_topics), strict=True):
        starts = torch.randint(len(tokens) - window, (count, 1), generator=sampler)
        windows.append(tokens[starts + torch.arange(window + 1)])
    stacked = torch.cat(windows)
    return stacked[:, :-1], stacked[:, 1:]


def _optimizer(model: Model, recipe: Recipe, stage: Stage) -> torch.optim.Optimizer:
    """AdamW, without decay of the norms' weights."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    norms = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, stage.rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay)


def rate_at(step: int, stage: Stage) -> float:
    """The learning rate: up linearly over the warm-up, down along a cosine to a fiftieth of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / stage.steps))
    return stage.rate * min(1.0, step / stage.warmup_steps) * (0.02 + 0.98 * cosine)


def _step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    rate: float,
    clip: float,
) -> float:
    """One update; returns the batch's bits per byte."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[0])
    loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[1].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item() / math.log(2)


def _report(step: int, train_bpb: float, heldout_bpb: float, seconds: float) -> str:
    return f"step {step:5d}  train {train_bpb:.3f}  held-out {heldout_bpb:.3f} bpb  {seconds:.0f} s"


def _write_curve(path: Path, curve: Sequence[tuple[int, float, float]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", "train_bpb", "heldout_bpb"))
        writer.writerows((step, f"{train:.4f}", f"{heldout:.4f}") for step, train, heldout in curve)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m flashperf.pipeline.train", description="Train the pipeline's small model."
    )
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, help="steps of the first stage, for a quick try")
    parser.add_argument("--out", type=Path, default=small_weights_path().parent)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--first-stage", type=int, default=0, help="go on from the files in --out")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(seed=options.seed)
    if options.steps is not None:
        first, *later = recipe.stages
        recipe = replace(recipe, stages=(replace(first, steps=options.steps), *later))
    train(recipe, options.out, options.first_stage)


if __name__ == "__main__":
    main()
