"""A cache of a GPU: lines of 128 bytes in sectors of 32, least recently used line out. Pure.

Fully associative and without hashing, so what strides do to the sets of a real cache doesn't show.
"""

from __future__ import annotations

from collections import OrderedDict

LINE_BYTES = 128
SECTORS_PER_LINE = 4
#: Sectors set in each mask of four.
COUNT = tuple(mask.bit_count() for mask in range(16))


class SectorCache:
    """``capacity_bytes`` of lines; a mask of four bits says which sectors of a line are meant."""

    def __init__(self, capacity_bytes: int) -> None:
        self._most_lines = capacity_bytes // LINE_BYTES
        self._lines: OrderedDict[int, int] = OrderedDict()  # line -> valid sectors, dirty ones 4 bits higher

    def read(self, line: int, mask: int) -> int:
        """Read sectors and keep them; returns the mask of those that were not there."""
        held = self._lines.get(line, 0)
        missing = mask & ~held
        self._keep(line, held | mask)
        return missing

    def write(self, line: int, mask: int) -> None:
        """Write sectors and keep them, dirty."""
        self._keep(line, self._lines.get(line, 0) | mask | mask << SECTORS_PER_LINE)

    def write_through(self, line: int) -> None:
        """A write that goes on to the next level: what is here of the line stays valid, nothing is added."""
        if line in self._lines:
            self._lines.move_to_end(line)

    def _keep(self, line: int, sectors: int) -> None:
        self._lines[line] = sectors
        self._lines.move_to_end(line)
        if len(self._lines) > self._most_lines:
            _, dropped = self._lines.popitem(last=False)
            self.written_back += COUNT[dropped >> SECTORS_PER_LINE]

    #: Dirty sectors that were dropped, and so written to memory.
    written_back: int = 0

    def flush(self) -> None:
        """Write back what is dirty; it stays, clean."""
        for line, sectors in self._lines.items():
            self.written_back += COUNT[sectors >> SECTORS_PER_LINE]
            self._lines[line] = sectors & 15
