"""Dynamic INT8 where the weights are not what costs: few inputs, very many outputs, many rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed


@functools.cache
def _layers(inputs: int, outputs: int, seed: int) -> tuple[Any, Any]:
    """The layer in f32 and in dynamic INT8, from the same weights."""
    import torch

    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs).eval()
    whole = torch.nn.Sequential(layer)
    return layer, torch.ao.quantization.quantize_dynamic(whole, {torch.nn.Linear}, torch.qint8)[0]


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    layer, quantised = _layers(inputs, outputs, seed)
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))
    module = quantised if path == "int8_dynamic" else layer

    def call() -> Any:
        with torch.no_grad():
            return module(x)

    def reference() -> Any:
        with torch.no_grad():
            return x.double() @ layer.weight.double().T + layer.bias.double()

    weight_bytes = inputs * outputs * (1 if path == "int8_dynamic" else 4)
    facts = {"weight_bytes": weight_bytes, "result_bytes": 4 * rows * outputs}
    if path == "f32":
        proof = Proof(ops=("aten::linear",), absent=("quantized::linear_dynamic",), module="linear.Linear")
        return Built(call, reference, 1e-4, facts, proof=proof, module=module)
    proof = Proof(
        ops=("quantized::linear_dynamic",), absent=("aten::addmm",), module="dynamic.modules.linear.Linear"
    )
    quantise = {"quantise": lambda: torch.quantize_per_tensor_dynamic(x, torch.qint8, False)}
    return Built(call, reference, 0.03, facts, quantise, proof, module)


CASE = OpenCase(
    id="A2",
    name="int8-wide-output",
    title="Dynamic INT8 with 60,000 outputs",
    source="pytorch/pytorch#103802",
    reported="A layer of 100 inputs and 60,000 outputs on 200 rows: INT8 took two to eleven times as long as f32, "
    "by engine; on one row it was faster.",
    axis="rows",
    baseline="f32",
    optimised="int8_dynamic",
    make=_make,
    points=(
        Point({"rows": 1, "inputs": 100, "outputs": 60000}, 1),
        Point({"rows": 20, "inputs": 100, "outputs": 60000}, 20),
        Point({"rows": 200, "inputs": 100, "outputs": 60000}, 200),
        Point({"rows": 200, "inputs": 1024, "outputs": 1024}, 200, CONTROL),
    ),
    headline=2,
    requires=(torch_installed,),
    expectation=Expectation("slower", "kernel unfit for the shape"),
)
