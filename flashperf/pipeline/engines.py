"""The engines by backend; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from flashperf.errors import UserError
from flashperf.suggest import unknown_name

#: Backend -> module and class. A further engine is a line here (``cuda_engine`` says what it takes).
ENGINES: dict[str, str] = {
    "cpu": "flashperf.pipeline.engine:CpuEngine",
    "cuda": "flashperf.pipeline.cuda_engine:CudaEngine",
    "triton": "flashperf.pipeline.triton_engine:TritonEngine",
}


def engine_of(backend: str, isa: str | None = None) -> Any:
    """The engine of a backend; ``isa`` is the CPU's instruction-set level. Raises UserError with the nearest names."""
    if backend not in ENGINES:
        raise UserError(unknown_name("backend of the pipeline", backend, ENGINES))
    module, _, name = ENGINES[backend].partition(":")
    engine = getattr(importlib.import_module(module), name)
    return engine(isa) if backend == "cpu" else engine()
