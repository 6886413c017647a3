"""Whether a path really ran: what torch's profiler saw in one call, against what the definition says must be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flashperf.cases.definition import Built, Proof


@dataclass(frozen=True)
class Seen:
    """Names and counts of everything that torch recorded in one call.

    nested: recorded while another operator ran.
    """

    all: Counter[str]
    nested: Counter[str]


def operators_of(call: Callable[[], Any]) -> Seen:
    """What torch's profiler records in one call on the CPU."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    events = profiler.events()
    inside = (
        event.name for event in events if event.cpu_parent is not None and "::" in event.cpu_parent.name
    )
    return Seen(Counter(event.name for event in events), Counter(inside))


def dispatches(operators: Mapping[str, int]) -> int:
    """Operators that went through torch's dispatcher: names with a namespace."""
    return sum(count for name, count in operators.items() if "::" in name)


def graphs(operators: Mapping[str, int]) -> int:
    """Compiled regions that ran."""
    return sum(count for name, count in operators.items() if name.startswith("Torch-Compiled Region"))


def objection(proof: Proof, operators: Mapping[str, int], module: Any, result: Any = None) -> str:
    """Why the path did not run as declared; empty if it did. ``result``: what the call returned."""
    missing = [wanted for wanted in proof.ops if not any(name.startswith(wanted) for name in operators)]
    if missing:
        return f"{', '.join(missing)} did not run; seen: {_most(operators)}"
    there = [name for name in proof.absent if name in operators]
    if there:
        return f"{', '.join(there)} ran, and should not have"
    kind = "" if module is None else f"{type(module).__module__}.{type(module).__qualname__}"
    if proof.module and not kind.endswith(proof.module):
        return f"the module is {kind or 'none'}, not {proof.module}"
    dtype = _dtype(result)
    if proof.result and dtype != proof.result:
        return f"the result is of dtype {dtype or 'none'}, not {proof.result}"
    return ""


def _dtype(result: Any) -> str:
    """``int32`` for an array or a tensor, or the first one of a sequence; empty where there is none."""
    while isinstance(result, list | tuple) and result:
        result = result[0]
    return str(getattr(result, "dtype", "")).removeprefix("torch.")


def _most(operators: Mapping[str, int]) -> str:
    ordered = sorted(operators.items(), key=lambda item: -item[1])
    return ", ".join(name for name, _ in ordered[:6]) or "nothing"


def seen(built: Built, with_torch: bool = True) -> tuple[dict[str, float], str]:
    """(facts of one call, objection): declared counts, dispatches and compiled regions; what did not run.

    with_torch: whether torch's profiler looks on; without it there are declared counts only.
    """
    result = built.call() if built.proof is not None and built.proof.result else None
    declared = built.facts() if callable(built.facts) else built.facts
    facts = {name: value.item() if hasattr(value, "item") else value for name, value in declared.items()}
    if built.proof is None:
        return facts, ""
    if not with_torch:
        if built.proof.ops or built.proof.absent:
            return (
                facts,
                "only torch's profiler sees operators, and torch_installed is not among what it requires",
            )
        return facts, objection(built.proof, {}, built.module, result)
    operators = operators_of(built.call)
    facts["dispatches"] = dispatches(operators.all)
    facts["nested"] = dispatches(operators.nested)
    facts["graphs"] = graphs(operators.all)
    return facts, objection(built.proof, operators.all, built.module, result)
