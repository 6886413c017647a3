"""Every case of the CUDA kernels, each once; the contract and the sanitizer tests run them."""

from __future__ import annotations

import numpy as np
from cuda_checks import Built, CudaCase, Expected
from cuda_pipeline_cases import pipeline_cases
from cuda_pipeline_product_cases import pipeline_product_cases
from cuda_product_cases import product_cases
from cuda_roof_cases import roof_cases
from cuda_row_cases import attention_cases, row_cases
from cuda_stream_cases import stream_cases

from flashperf.emulator import Launch


def hold_case(released: int) -> CudaCase:
    """Let go before it begins, or never: then it gives up. Emulated, each reading of the clock is a millisecond."""

    def build() -> Built:
        flag, gave_up = np.array([released], np.int32), np.zeros(1, np.int32)
        made = Launch("hold", (1,), (1,), (flag, gave_up, np.int64(20_000_000)))
        return [made], [Expected(gave_up, "i32", np.array([1.0 - released]), 0.0)]

    return CudaCase("hold", f"released={released}", build)


def all_cases() -> list[CudaCase]:
    """Every variant at every size."""
    return [
        *product_cases(),
        *row_cases(),
        *attention_cases(),
        *stream_cases(),
        *roof_cases(),
        *pipeline_cases(),
        *pipeline_product_cases(),
        hold_case(0),
        hold_case(1),
    ]
