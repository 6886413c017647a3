"""Train the pipeline's small model on Python's documentation.

    python -m flashperf.pipeline.train [--seed 0] [--steps N] [--out DIR] [--threads N]

Writes `small.safetensors` (bfloat16), `training_curve.csv` and `model_card.json` to DIR, by default where the
package keeps them.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from flashperf.dtypes import from_bf16, to_bf16
from flashperf.pipeline import ngram, text
from flashperf.pipeline.config import SMALL
from flashperf.pipeline.torch_model import Model
from flashperf.pipeline.weights import small_weights_path, write_safetensors


@dataclass(frozen=True)
class Recipe:
    """What decides the weights, beside the text and the machine."""

    seed: int = 0
    steps: int = 5000
    windows: tuple[int, ...] = (256, 256, 256, 512)  # positions; taken in turn, RoPE must reach past 256
    tokens_per_step: int = 2048
    topics_share: float = 0.375  # of a batch's windows; the others are docstrings, which are 5x as much text
    dropout: float = 0.1
    rate: float = 0.003
    warmup_steps: int = 200
    weight_decay: float = 0.1
    clip: float = 1.0


def train(recipe: Recipe, out: Path, report_every: int = 200) -> None:
    """Train and write all three files to `out`, which is refreshed at every report."""
    torch.manual_seed(recipe.seed)
    training, heldout = text.training_text(), _tokens(text.heldout_bytes())
    parts = _tokens(training.topics), _tokens(training.docstrings)
    model = Model(SMALL, recipe.dropout)
    optimizer = _optimizer(model, recipe)
    sampler = torch.Generator().manual_seed(recipe.seed)
    started, losses, curve = time.perf_counter(), [], []
    for step in range(1, recipe.steps + 1):
        losses.append(_step(model, optimizer, make_batch(parts, step, recipe, sampler), step, recipe))
        if step % report_every and step != recipe.steps:
            continue
        heldout_bpb, _ = evaluate(model, heldout, window=256)
        curve.append((step, float(np.mean(losses)), heldout_bpb))
        losses.clear()
        seconds = time.perf_counter() - started
        print(_progress(*curve[-1], seconds), flush=True)
        _write_curve(out / "training_curve.csv", curve)
        write_safetensors(out / small_weights_path().name, bf16_weights(model), {"seed": str(recipe.seed)})
    card = model_card(model, recipe, time.perf_counter() - started)
    (out / "model_card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card, indent=2))


def evaluate(model: Model, tokens: torch.Tensor, window: int) -> tuple[float, float]:
    """Bits per byte and the share of bytes guessed right, over `tokens` in windows without overlap.

    A byte's context is only its own window, so the first bytes of each window count as well and a longer
    window is an easier task.
    """
    model.eval()
    bits = hits = 0.0
    rows = (len(tokens) - 1) // window
    inputs, targets = (tokens[start : start + rows * window].view(rows, window) for start in (0, 1))
    together = max(1, 4096 // window)
    with torch.no_grad():
        for x, y in zip(inputs.split(together), targets.split(together), strict=True):
            logits = model(x)
            bits += functional.cross_entropy(
                logits.flatten(0, 1), y.flatten(), reduction="sum"
            ).item() / math.log(2)
            hits += (logits.argmax(-1) == y).sum().item()
    model.train()
    return bits / targets.numel(), hits / targets.numel()


def bf16_weights(model: Model) -> dict[str, np.ndarray]:
    """The weights rounded to bfloat16 (uint16 bit patterns), in the order of `ModelConfig.shapes()`."""
    state = model.state_dict()
    return {name: to_bf16(state[name].numpy()) for name in model.config.shapes()}


def model_card(model: Model, recipe: Recipe, wall_s: float) -> dict[str, object]:
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
        "wall_s": round(wall_s, 1),
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
    parts: tuple[torch.Tensor, torch.Tensor], step: int, recipe: Recipe, sampler: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of both parts of the text and the bytes that follow each position, int64 [b, t]."""
    window = recipe.windows[step % len(recipe.windows)]
    rows = recipe.tokens_per_step // window
    from_topics = round(rows * recipe.topics_share)
    windows = []
    for tokens, count in zip(parts, (from_topics, rows - from_topics), strict=True):
        starts = torch.randint(len(tokens) - window, (count, 1), generator=sampler)
        windows.append(tokens[starts + torch.arange(window + 1)])
    stacked = torch.cat(windows)
    return stacked[:, :-1], stacked[:, 1:]


def _optimizer(model: Model, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW, without decay of the norms' weights."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    norms = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, recipe.rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay)


def rate_at(step: int, recipe: Recipe) -> float:
    """The learning rate: up linearly over the warm-up, down along a cosine to a fiftieth of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return recipe.rate * min(1.0, step / recipe.warmup_steps) * (0.02 + 0.98 * cosine)


def _step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    step: int,
    recipe: Recipe,
) -> float:
    """One update; returns the batch's bits per byte."""
    for group in optimizer.param_groups:
        group["lr"] = rate_at(step, recipe)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[0])
    loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[1].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item() / math.log(2)


def _progress(step: int, train_bpb: float, heldout_bpb: float, seconds: float) -> str:
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
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--out", type=Path, default=small_weights_path().parent)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    train(Recipe(seed=options.seed, steps=options.steps), options.out)


if __name__ == "__main__":
    main()
