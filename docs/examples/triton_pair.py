"""Does fusing pay? silu(a) * b as one Triton kernel, against the two that eager code launches.

python docs/examples/triton_pair.py
"""

import torch
import triton
import triton.language as tl

import flashperf

DEVICE = (
    "cuda" if torch.cuda.is_available() else "cpu"
)  # on a CPU: TRITON_INTERPRET=1, to check and not to time
N = 1 << 24 if DEVICE == "cuda" else 1 << 12
BLOCK = 1024


@triton.jit
def silu_kernel(a, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(a + at, mask=at < n)
    tl.store(y + at, value / (1.0 + tl.exp(-value)), mask=at < n)


@triton.jit
def multiply_kernel(a, b, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(a + at, mask=at < n) * tl.load(b + at, mask=at < n), mask=at < n)


@triton.jit
def fused_kernel(a, b, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(a + at, mask=at < n)
    gate = value / (1.0 + tl.exp(-value))
    tl.store(y + at, gate * tl.load(b + at, mask=at < n), mask=at < n)


def split(a, b):
    y, grid = torch.empty_like(a), (triton.cdiv(a.numel(), BLOCK),)
    silu_kernel[grid](a, y, a.numel(), BLOCK)
    product = torch.empty_like(a)
    multiply_kernel[grid](y, b, product, a.numel(), BLOCK)
    return product


def fused(a, b):
    y, grid = torch.empty_like(a), (triton.cdiv(a.numel(), BLOCK),)
    fused_kernel[grid](a, b, y, a.numel(), BLOCK)
    return y


def inputs(seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return [torch.randn(N, device=DEVICE, generator=generator) for _ in "ab"]


def exact(a, b):
    return a / (1 + torch.exp(-a)) * b


if __name__ == "__main__":
    print(flashperf.compare(split, fused, inputs, reference=exact, bytes=(20 * N, 12 * N)))
