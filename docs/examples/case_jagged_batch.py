"""A batch without padding, as a jagged tensor, against the same batch padded: half the work, many more calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_at_least, torch_installed

_BATCH, _WIDTH, _HIDDEN = 16, 64, 256


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    longest = sizes["longest"]
    lengths = [
        longest,
        *(1 + n * longest // _BATCH for n in range(_BATCH - 1)),
    ]  # half of a padded batch is padding
    rows = [torch.randn(length, _WIDTH) for length in lengths]
    up, down = torch.randn(_HIDDEN, _WIDTH) / 8, torch.randn(_WIDTH, _HIDDEN) / 16
    if path == "padded":
        x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    else:
        x = torch.nested.nested_tensor(rows, layout=torch.jagged)

    def block() -> Any:
        with torch.no_grad():
            return functional.linear(functional.gelu(functional.linear(x, up)), down)

    def call() -> Any:
        y = block()
        return y.values() if path == "jagged" else y

    def reference() -> Any:
        exact = [functional.gelu(row.double() @ up.double().T) @ down.double().T for row in rows]
        return (
            torch.cat(exact) if path == "jagged" else torch.nn.utils.rnn.pad_sequence(exact, batch_first=True)
        )

    tokens = sum(lengths) if path == "jagged" else _BATCH * longest
    facts = {"work": 4 * tokens * _WIDTH * _HIDDEN, "useful": 4 * sum(lengths) * _WIDTH * _HIDDEN}
    proof = Proof(
        ops=("aten::linear", "aten::gelu"), module="NestedTensor" if path == "jagged" else "torch.Tensor"
    )
    return Built(call, reference, 1e-4, facts, proof=proof, module=x)


CASE = OpenCase(
    id="C2",
    name="jagged-batch",
    title="A batch without padding, as a jagged tensor",
    source="pytorch/pytorch#115371, #145402",
    reported="Adding two jagged tensors took 300 us before it was made faster; users who expected a speed-up outside "
    "of compiled code got a loss on small tensors.",
    axis="longest",
    baseline="padded",
    optimised="jagged",
    make=_make,
    points=tuple(Point({"longest": longest}, longest) for longest in (4, 16, 64, 256, 1024)),
    requires=(torch_installed, torch_at_least(2, 5)),
    expectation=Expectation("slower", "fixed cost per call"),
)
