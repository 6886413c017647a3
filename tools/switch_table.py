"""Prints the switches of the pipeline as a Markdown table, from their definitions; docs/pipeline.md shows it."""

from __future__ import annotations

from flashperf.pipeline.switches import FLASH_PRESETS, SWITCHES


def main() -> None:
    """One row per level; the first level of a switch is the standard one."""
    print("| switch | level | what it does, and who does it | Flash A | Flash B |")
    print("|---|---|---|---|---|")
    for switch in SWITCHES.values():
        for number, (level, text) in enumerate(switch.levels.items()):
            name = f"**{switch.name}**" if number == 0 else ""
            marks = [
                "x" if preset.get(switch.name, switch.standard) == level else ""
                for preset in FLASH_PRESETS.values()
            ]
            print(f"| {name} | `{level}` | {text} | {' | '.join(marks)} |")


if __name__ == "__main__":
    main()
