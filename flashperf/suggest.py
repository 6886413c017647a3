"""One way to say that a name is not known, with the nearest ones that are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """A message for an unknown name: the nearest valid ones first, then all of them."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}valid are {', '.join(names)}"
