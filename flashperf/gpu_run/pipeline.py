"""Stage: the pipeline with the CUDA backend, both presets and each of their levels alone, logits against float64."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from flashperf.errors import UserError
from flashperf.pipeline.subject import PipelineSubject, WrongLogitsError
from flashperf.pipeline.switches import FLASH_PRESETS, STANDARD


def mixtures() -> dict[str, dict[str, str]]:
    """Standard, every level of a preset alone, and both presets."""
    found = {"standard": dict(STANDARD)}
    for preset in FLASH_PRESETS.values():
        for name, level in preset.items():
            found[f"{name}={level}"] = {**STANDARD, name: level}
    found |= {f"preset {name}": {**STANDARD, **preset} for name, preset in FLASH_PRESETS.items()}
    return found


def main() -> int:
    """0 if every mixture that CUDA has is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--scenario", default="single")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    subject = PipelineSubject(options.model, options.scenario, backend="cuda")
    rows: list[dict[str, object]] = []
    wrong = 0
    for label, levels in mixtures().items():
        begin = time.perf_counter()
        row: dict[str, object] = {"mixture": label, "levels": levels}
        try:
            row["snr_db"] = subject.check([levels])[0]
            said = f"right, {row['snr_db']:.0f} dB"
        except WrongLogitsError as error:
            wrong += 1
            row["problem"] = said = str(error)
        except (
            UserError
        ) as error:  # a level that this backend doesn't have, or a size that a kernel doesn't take
            row["not_here"] = said = str(error)
        row["seconds"] = time.perf_counter() - begin
        rows.append(row)
        print(f"{label}: {said}", flush=True)
        options.out.write_text(json.dumps({"model": options.model, "mixtures": rows}, indent=1))
    print(f"{len(rows)} mixtures, {wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
