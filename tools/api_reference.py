"""Prints the reference of the public Python API as Markdown, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import ModuleType
from typing import Any

import flashperf
from flashperf import pytest_plugin

BENCHES = ("bench_cases", "bench_end_to_end")


def entry(name: str, found: Any) -> str:
    """One name: how it is called or built, and what its docstring says."""
    if isinstance(found, ModuleType):  # a module that is called like its function
        found = getattr(found, name.rpartition(".")[2])
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(found)))
    if dataclasses.is_dataclass(found):
        fields = [f"{field.name}: {field.type}" for field in dataclasses.fields(found)]
        signature = "(" + ", ".join(fields) + ")"
    shown = f"{name}{signature}"
    if len(shown) > 100:
        inside, _, returns = shown[len(name) + 1 :].rpartition(")")
        parts = "".join(f"    {part.strip()},\n" for part in split(inside))
        shown = f"{name}(\n{parts}){returns}"
    text = inspect.getdoc(found) or ""
    return f"### {name}\n\n```python\n{shown}\n```\n\n{prose(text)}\n"


def split(parameters: str) -> list[str]:
    """A parameter list at its outer commas."""
    parts, depth = [""], 0
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def prose(text: str) -> str:
    """A docstring as Markdown: its indented tables of names stand as they are."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        is_table = sum(":" in line.split(" ")[0] or line.startswith(" ") for line in lines) > len(lines) / 2
        paragraphs.append(f"```\n{paragraph}\n```" if is_table else paragraph.replace("``", "`"))
    return "\n\n".join(paragraphs)


def main() -> None:
    """Print every public name."""
    for name in sorted(flashperf.__all__, key=str.lower):
        print(entry(f"flashperf.{name}", getattr(flashperf, name)))
    print("## Benches\n\n`from flashperf.pytest_plugin import bench_cases, bench_end_to_end`\n")
    for name in BENCHES:
        print(entry(name, getattr(pytest_plugin, name)))


if __name__ == "__main__":
    main()
