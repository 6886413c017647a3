"""All claims by id."""

from __future__ import annotations

from flashperf.claims import document_a, document_b
from flashperf.claims.definition import Claim
from flashperf.errors import UserError
from flashperf.suggest import unknown_name

CLAIMS: tuple[Claim, ...] = (*document_a.CLAIMS, *document_b.CLAIMS)


def claim_named(name: str) -> Claim:
    """A claim by its id, any case. Raises UserError with the nearest ones."""
    for claim in CLAIMS:
        if claim.id.lower() == name.lower():
            return claim
    raise UserError(unknown_name("claim", name.upper(), [claim.id for claim in CLAIMS]))
