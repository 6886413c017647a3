"""``flashperf explain --backend cuda --gpu NAME``: the prediction for a GPU that is not here."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from flashperf.errors import UserError


def forecast(gpu: str, given: Mapping[str, str], seed: int, as_json: bool) -> int:
    """Predict and print. ``given``: the options of explain that were given.

    Raises UserError for an unknown GPU, and for a backend other than CUDA.
    """
    from flashperf.forecast import forecast_pipeline
    from flashperf.gpus import gpu as find_gpu

    device = find_gpu(gpu)
    if given.get("backend") != "cuda":
        raise UserError("--gpu predicts CUDA kernels: it goes with --backend cuda")
    options = {name: value for name, value in given.items() if name != "backend"}
    found = forecast_pipeline(device, seed=seed, **options)
    from flashperf.report import console_for
    from flashperf.report.forecast_tables import as_record, print_forecast

    if as_json:
        print(json.dumps(as_record(found), indent=1))
    else:
        print_forecast(found, console_for(sys.stdout))
    return 0
