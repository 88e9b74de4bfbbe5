"""Energy that the processor itself counted (RAPL), and CPU time, which is always available.

RAPL counters are the kernel's powercap zones: energy_uj counts microjoules and starts again at max_energy_range_uj.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from lapis import pack
from lapis.bench.contenders import LAPIS_FILE, OURS, Workload
from lapis.bench.runner import take_turns
from lapis.bench.worker import BenchLog, Turn, prepare, workers
from lapis.deploy.network import Network

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
    """What one call took: joules where they are counted, and CPU seconds."""

    joules: float | None
    cpu_s: float


@dataclass(frozen=True)
class EnergyRow:
    """One engine on one thread; joules are None where the processor does not count them."""

    engine: str
    joules_per_image: float | None
    cpu_ms_per_image: float


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


def cost_of(call: Callable[[], Turn], zones: Sequence[Zone]) -> Cost:
    """The cost of one call, which returns its own CPU time.

    RAPL counts the whole package, so the joules are valid only if nothing else runs.
    """
    before = [zone.read() for zone in zones]
    turn = call()
    joules = sum(zone.since(was) for zone, was in zip(zones, before, strict=True)) / 1e6 if zones else None
    return Cost(joules, turn.cpu_s)


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The median of the joules and the median of the CPU time."""
    joules = [cost.joules for cost in costs if cost.joules is not None]
    return Cost(median(joules) if joules else None, median(cost.cpu_s for cost in costs))


def compare_energy(
    network: Network, others: Sequence[str], batch: int, rounds: int, zones: Sequence[Zone], log: BenchLog
) -> list[EnergyRow]:
    """`network` on our engine and the dense network of its shape on the others, in turns, one thread each."""
    workload = Workload(network.config, threads=1, batch=batch)
    with tempfile.TemporaryDirectory(prefix="lapis-bench-") as folder_name:
        folder = Path(folder_name)
        # Our engine's process loads the file in this folder: this network instead of a random one.
        pack.save(folder / LAPIS_FILE, network)
        ready = [OURS, *prepare(others, network.config, folder, log)]
        with workers(ready, workload, folder, log) as running:
            costs = take_turns(
                {name: partial(cost_of, worker.time, zones) for name, worker in running.items()},
                rounds,
                lambda name, error: log.skip(running[name].label, str(error)),
            )
            labels = {name: OURS if name == OURS else worker.label for name, worker in running.items()}
    return [_row(labels[name], median_cost(seen), batch) for name, seen in costs.items()]


def _row(engine: str, cost: Cost, batch: int) -> EnergyRow:
    joules = None if cost.joules is None else cost.joules / batch
    return EnergyRow(engine, joules, 1e3 * cost.cpu_s / batch)
