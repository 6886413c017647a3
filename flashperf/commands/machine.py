"""Commands that say what is here: ``env``, ``mechanisms``, ``version``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def env(as_json: Json = False) -> int:
    """Show this machine and what can run on it.

    As records keep it: device, instruction sets, threads, timer, load, versions; and the backends.
    """
    from rich.table import Table
    from rich.text import Text

    from flashperf.backends import BACKENDS
    from flashperf.environment import capture
    from flashperf.report import console_for
    from flashperf.report.tables import environment_table
    from flashperf.store import to_json

    environment = capture()
    backends = {name: backend.why_not() for name, backend in BACKENDS.items()}
    if as_json:
        found = {"environment": to_json(environment), "backends": backends}
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    console = console_for(sys.stdout)
    console.print(environment_table(environment), width=min(console.width, 80))
    table = Table.grid(padding=(0, 2))
    for name, why_not in backends.items():
        table.add_row(Text(f"backend {name}"), Text(why_not or "ready"))
    console.print(table, width=min(console.width, 80))
    return 0


def mechanisms(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the catalogue as Markdown.")] = False,
) -> int:
    """List the mechanisms and their variants.

    For each: its variants, the standard one first, the claims that it bears on, and its question.
    """
    from rich.padding import Padding
    from rich.text import Text

    from flashperf.registry import mechanisms as all_mechanisms
    from flashperf.report import console_for

    if markdown:
        from flashperf.report.catalogue import catalogue

        print(catalogue())
        return 0
    rows = [
        {
            "name": found.name,
            "question": found.question,
            "variants": [found.standard, *(name for name in found.variants if name != found.standard)],
            "claims": list(found.claims),
        }
        for found in all_mechanisms()
    ]
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    console = console_for(sys.stdout)
    width = min(console.width, 80)
    for row in rows:
        claims = f"  (claims {' '.join(row['claims'])})" if row["claims"] else ""
        console.print(
            Text.assemble((str(row["name"]), "bold"), f": {', '.join(row['variants'])}{claims}"), width=width
        )
        console.print(Padding(Text(str(row["question"]), "dim"), (0, 0, 0, 2), expand=False), width=width)
    return 0


def version() -> int:
    """Print the version."""
    import flashperf

    print(f"flashperf {flashperf.__version__}")
    return 0
