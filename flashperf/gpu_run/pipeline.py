"""Stage: the pipeline with a GPU's kernels: both presets and each of their levels alone, logits against float64."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from flashperf.errors import UserError
from flashperf.pipeline.subject import PipelineSubject
from flashperf.pipeline.switches import FLASH_PRESETS, STANDARD


def mixtures() -> dict[str, dict[str, str]]:
    """Standard, every level of a preset alone, and both presets."""
    found = {"standard": dict(STANDARD)}
    for preset in FLASH_PRESETS.values():
        for name, level in preset.items():
            found[f"{name}={level}"] = {**STANDARD, name: level}
    found |= {f"preset {name}": {**STANDARD, **preset} for name, preset in FLASH_PRESETS.items()}
    return found


def check(backend: str, model: str, scenario: str) -> Iterator[dict[str, object]]:
    """A row per mixture: its SNR in dB, or what is wrong, or why this backend doesn't have it."""
    subject = PipelineSubject(model, scenario, backend=backend)
    for label, levels in mixtures().items():
        begin = time.perf_counter()
        row: dict[str, object] = {"backend": backend, "mixture": label, "levels": levels}
        try:
            row["snr_db"] = subject.check([levels])[0]
            said = f"right, {row['snr_db']:.0f} dB"
        except (
            UserError
        ) as error:  # a level that this backend doesn't have, or a size that a kernel doesn't take
            row["not_here"] = said = str(error)
        except RuntimeError as error:  # WrongLogitsError, and what a driver raises
            row["problem"] = said = f"{type(error).__name__}: {error}".splitlines()[0]
        row["seconds"] = time.perf_counter() - begin
        print(f"{backend}, {label}: {said}", flush=True)
        yield row


def main() -> int:
    """0 if every mixture that a backend has is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--backends", default="cuda", metavar="NAME,...")
    parser.add_argument("--scenario", default="single")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for backend in options.backends.split(","):
        for row in check(backend, options.model, options.scenario):
            rows.append(row)
            options.out.write_text(json.dumps({"model": options.model, "mixtures": rows}, indent=1))
    wrong = sum("problem" in row for row in rows)
    print(f"{len(rows)} mixtures, {wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
