"""Energy that the processor itself counted (RAPL), and processor time where it does not count or tell.

RAPL counters are the kernel's powercap zones: energy_uj rises with every microjoule and wraps at max_energy_range_uj.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Zone:
    """The counter of one processor package."""

    path: Path

    def read(self) -> int:
        return int((self.path / "energy_uj").read_text())

    def since(self, before: int) -> int:
        """Microjoules since a reading, across at most one wrap."""
        now = self.read()
        return now - before if now >= before else now - before + int((self.path / "max_energy_range_uj").read_text())


@dataclass(frozen=True)
class Cost:
    """What one call took: joules where they are counted, and CPU seconds of this process."""

    joules: float | None
    cpu_seconds: float


def packages(root: Path = POWERCAP) -> tuple[list[Zone], str]:
    """The counters of all packages, or none and the reason."""
    zones = []
    for zone in sorted(root.glob("*rapl:*")):
        try:
            if (zone / "name").read_text().startswith("package"):
                Zone(zone).read()
                zones.append(Zone(zone))
        except PermissionError:
            return [], f"{zone / 'energy_uj'} may be read by root only"
        except (OSError, ValueError):
            continue
    return zones, "" if zones else f"this machine shows no RAPL counters in {root}"


def compare(contenders: dict[str, Callable[[], object]], rounds: int, zones: list[Zone]) -> dict[str, Cost]:
    """The median cost of one call of each, taken in turns; each is called once before, to warm up.

    RAPL counts the whole package, so joules mean something only where nothing else runs.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()
    for _ in range(rounds):
        for name, call in contenders.items():
            before, started = [zone.read() for zone in zones], time.process_time()
            call()
            spent = time.process_time() - started
            joules = sum(zone.since(was) for zone, was in zip(zones, before, strict=True)) / 1e6 if zones else None
            costs[name].append(Cost(joules, spent))
    return {
        name: Cost(
            median(cost.joules for cost in seen if cost.joules is not None) if zones else None,
            median(cost.cpu_seconds for cost in seen),
        )
        for name, seen in costs.items()
    }
