"""Joules are read from counters that wrap; without counters, CPU time is told instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapis.bench.joules import Zone, compare, packages


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


def test_joules_of_a_call_are_what_the_counter_rose_by(tmp_path: Path) -> None:
    folder = _zone(tmp_path, "intel-rapl:0", 0)
    counter = folder / "energy_uj"

    def work(microjoules: int) -> None:
        counter.write_text(str((int(counter.read_text()) + microjoules) % 1_000_000))

    costs = compare({"small": lambda: work(1_000), "large": lambda: work(3_000)}, 5, packages(tmp_path)[0])
    assert costs["small"].joules == pytest.approx(0.001)
    assert costs["large"].joules == pytest.approx(0.003)


def test_without_counters_the_reason_is_named_and_cpu_time_told(tmp_path: Path) -> None:
    zones, reason = packages(tmp_path)
    assert zones == []
    assert "no RAPL" in reason
    costs = compare({"sum": lambda: sum(range(300_000)), "nothing": lambda: None}, 3, zones)
    assert costs["sum"].joules is None
    assert costs["sum"].cpu_seconds > costs["nothing"].cpu_seconds
