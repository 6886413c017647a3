"""The yardstick: how well bytes can be guessed by counting which byte followed the last five."""

from __future__ import annotations

import math
from collections import Counter, defaultdict


class ByteModel:
    """An interpolated n-gram model over bytes, smoothed by Witten and Bell.

    The chance of byte b after a context of k bytes, seen n times with d distinct successors, is::

        p_k(b) = (count(b) + d * p_{k-1}(b)) / (n + d)

    down to p_{-1} = 1/256. A context that was never seen leaves the shorter one's chance as it is.
    I. H. Witten and T. C. Bell, "The zero-frequency problem", IEEE Transactions on Information Theory 37(4),
    1991, method C.
    """

    def __init__(self, training: bytes, order: int = 5) -> None:
        """Count successors of every context of 0 to `order` bytes in `training`."""
        if order < 0:
            raise ValueError(f"order must be at least 0, got {order}")
        self.order = order
        self._successors: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        for length in range(order + 1):
            for end in range(length, len(training)):
                self._successors[training[end - length : end]][training[end]] += 1
        self._totals = {context: counts.total() for context, counts in self._successors.items()}

    def probability(self, byte: int, context: bytes) -> float:
        """The chance of `byte` after `context`, of which the last `order` bytes count."""
        chance = 1 / 256
        for length in range(min(self.order, len(context)) + 1):
            seen = context[len(context) - length :]
            total = self._totals.get(seen)
            if total is None:  # then no longer context was seen either
                break
            counts = self._successors[seen]
            chance = (counts[byte] + len(counts) * chance) / (total + len(counts))
        return chance

    def bits_per_byte(self, text: bytes) -> float:
        """Mean of -log2 of the chance of each byte of `text` after those before it."""
        if not text:
            raise ValueError("bits per byte of an empty text")
        bits = (
            -math.log2(self.probability(text[end], text[max(0, end - self.order) : end]))
            for end in range(len(text))
        )
        return sum(bits) / len(text)
