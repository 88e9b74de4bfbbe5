"""Joules are read from counters that wrap; without counters, CPU time is told instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapis.bench.contenders import CONTENDERS
from lapis.bench.joules import Cost, Zone, compare_energy, cost_of, median_cost, packages
from lapis.bench.worker import BenchLog, Turn
from lapis.config import preset
from lapis.deploy.synthetic import random_network

SMALL = random_network(preset("lapis_tiny", image_size=32, depth=1, classes=4).deployed())


def _zone(root: Path, name: str, energy: int, kind: str = "package-0") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(kind + "\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text("1000000\n")
    return folder


def test_only_packages_are_counted_so_that_no_joule_counts_twice(tmp_path: Path) -> None:
    _zone(tmp_path, "intel-rapl:0", 5)
    _zone(tmp_path, "intel-rapl:0:0", 5, "core")
    _zone(tmp_path, "intel-rapl:1", 5, "package-1")
    zones, reason = packages(tmp_path)
    assert [zone.path.name for zone in zones] == ["intel-rapl:0", "intel-rapl:1"]
    assert reason == ""


def test_a_counter_that_wraps_still_gives_the_difference(tmp_path: Path) -> None:
    folder = _zone(tmp_path, "intel-rapl:0", 999_990)
    zone = Zone(folder)
    before = zone.read()
    (folder / "energy_uj").write_text("15\n")
    assert zone.since(before) == 25


def test_joules_of_a_call_are_what_all_counters_rose_by(tmp_path: Path) -> None:
    counters = [_zone(tmp_path, f"intel-rapl:{package}", 999_500) / "energy_uj" for package in range(2)]

    def work() -> Turn:
        for counter in counters:
            counter.write_text(str((int(counter.read_text()) + 1_500) % 1_000_000))
        return Turn(wall_s=2.0, cpu_s=0.25)

    cost = cost_of(work, packages(tmp_path)[0])
    assert cost.joules == pytest.approx(0.003)
    assert cost.cpu_s == 0.25


def test_without_counters_the_reason_is_named_and_cpu_time_told(tmp_path: Path) -> None:
    zones, reason = packages(tmp_path)
    assert zones == []
    assert "no RAPL" in reason
    assert cost_of(lambda: Turn(1.0, 0.5), zones) == Cost(None, 0.5)


def test_medians_are_taken_of_joules_and_of_time_apart() -> None:
    assert median_cost([Cost(1.0, 30.0), Cost(2.0, 10.0), Cost(9.0, 20.0)]) == Cost(2.0, 20.0)
    assert median_cost([Cost(None, 1.0), Cost(None, 3.0)]) == Cost(None, 2.0)


def test_our_network_and_a_rival_are_counted_per_image(tmp_path: Path) -> None:
    folder = _zone(tmp_path, "intel-rapl:0", 0)

    class Rising(Zone):
        """A counter that rises by 8,000 microjoules between any two readings."""

        def read(self) -> int:
            value = super().read() + 8_000
            (folder / "energy_uj").write_text(str(value))
            return value

    rows = compare_energy(SMALL, ["torch"], batch=4, rounds=2, zones=[Rising(folder)], log=BenchLog(lambda line: None))
    assert [row.engine for row in rows] == ["lapis", CONTENDERS["torch"].label]
    for row in rows:
        assert row.joules_per_image == pytest.approx(0.002)
        assert row.cpu_ms_per_image > 0
