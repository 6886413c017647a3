"""Energy counters of the processor packages (RAPL through /sys/class/powercap), or why they can't be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class EnergyCounter:
    """Joules of all processor packages between two readings.

    ``reason`` is empty if the counters can be read, else it says why not; most virtual machines and
    containers have none, and since Linux 5.10 only root reads them by default (CVE-2020-8694).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        folder = root / "sys/class/powercap"
        # One zone per package: "intel-rapl:0". Sub-zones ("intel-rapl:0:0") are parts of it, not more energy.
        self._zones = sorted(folder.glob("intel-rapl:*")) if folder.is_dir() else []
        self._zones = [zone for zone in self._zones if zone.name.count(":") == 1]
        self.reason = ""
        if not self._zones:
            self.reason = "this machine shows no energy counters (no package under /sys/class/powercap)"
            return
        try:
            self.read_uj()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.reason = f"the energy counters can't be read: {why}"

    def read_uj(self) -> dict[str, int]:
        """Microjoules by package since an arbitrary moment. Raises OSError where ``reason`` says so."""
        return {zone.name: int((zone / "energy_uj").read_text()) for zone in self._zones}

    def joules(self, before: Mapping[str, int], after: Mapping[str, int]) -> float:
        """Energy in J between two readings less than one wrap of the counter apart (minutes to hours)."""
        total_uj = 0
        for zone in self._zones:
            used_uj = after[zone.name] - before[zone.name]
            if used_uj < 0:
                used_uj += int((zone / "max_energy_range_uj").read_text())
            total_uj += used_uj
        return total_uj * 1e-6
