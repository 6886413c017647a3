"""Every case of the CUDA kernels, each once; the contract and the sanitizer tests run them."""

from __future__ import annotations

from cuda_checks import CudaCase
from cuda_pipeline_cases import pipeline_cases
from cuda_pipeline_product_cases import pipeline_product_cases
from cuda_product_cases import product_cases
from cuda_row_cases import attention_cases, row_cases
from cuda_stream_cases import stream_cases


def all_cases() -> list[CudaCase]:
    """Every variant at every size."""
    return [
        *product_cases(),
        *row_cases(),
        *attention_cases(),
        *stream_cases(),
        *pipeline_cases(),
        *pipeline_product_cases(),
    ]
