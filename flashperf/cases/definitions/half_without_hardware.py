"""Half precision on a processor that has no arithmetic for it: the product falls back to scalar code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import isa_without, torch_installed

#: Rounding of the result and of a few operands, as a fraction of the largest value.
_TOLERANCE = {"f32": 1e-5, "f16": 5e-3, "bf16": 4e-2, "f16_cast_back": 5e-3}


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    n = sizes["n"]
    generator = torch.Generator().manual_seed(seed)
    narrow = torch.bfloat16 if path == "bf16" else torch.float32 if path == "f32" else torch.float16
    a, b = (torch.randn(n, n, generator=generator).to(narrow) for _ in range(2))

    def product() -> Any:
        return a @ b

    def cast_back() -> Any:
        return (a.float() @ b.float()).half()

    ops = ("aten::mm", "aten::_to_copy") if path == "f16_cast_back" else ("aten::mm",)
    return Built(
        call=cast_back if path == "f16_cast_back" else product,
        reference=lambda: a.double() @ b.double(),
        tolerance=_TOLERANCE[path],
        facts={"operand_bits": torch.finfo(narrow).bits, "casts": float(path == "f16_cast_back")},
        proof=Proof(ops=ops, absent=() if path == "f16_cast_back" else ("aten::_to_copy",)),
    )


CASE = OpenCase(
    id="A3",
    name="half-without-hardware",
    title="f16 products on a CPU without f16 arithmetic",
    source="pytorch/pytorch#146508, #59177",
    reported="Square products in f16 took 40 to 500 times as long as in f32 on CPUs without f16 instructions; casting "
    "to f32 and back would have cost next to nothing.",
    axis="n",
    baseline="f32",
    optimised="f16",
    others=("f16_cast_back", "bf16"),
    make=_make,
    points=(
        Point({"n": 64}, 64, paths=("f16",)),
        Point({"n": 256}, 256, paths=("f16",)),
        Point({"n": 500}, 500),
        Point({"n": 1000}, 1000, paths=("f16",)),
    ),
    headline=2,
    requires=(torch_installed,),
    expectation=Expectation("slower", "no hardware path", where=(isa_without("avx512_fp16", "amx_fp16"),)),
)
