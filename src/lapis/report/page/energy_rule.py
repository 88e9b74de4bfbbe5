"""The energy model as numbers that a page can apply to the activities of any run.

Every count of operations is a constant plus a multiple of the activity at each measuring point (`lapis.energy`), and
all blocks have the same shape. So the estimate of a silent network and those of networks in which one point fires fully
say everything: energy = silent + sum over points of (full - silent) activity, the activity averaged over the blocks.
"""

from __future__ import annotations

from typing import Any

from lapis.config import LapisConfig
from lapis.energy import CONVENTIONS, estimate
from lapis.energy.costs import DEFAULT_TABLE
from lapis.energy.counts import needed_points
from lapis.report.page.page import energy_rows
from lapis.trace import Point

# The entry of a quantity that no activity changes.
SILENT = "silent"
Quantity = dict[str, float]


def energy_rules(config: LapisConfig) -> list[dict[str, Any]]:
    """The rule of every convention, in the order of `lapis.energy.side_by_side`."""
    return [energy_rule(config, name) for name in CONVENTIONS]


def energy_rule(config: LapisConfig, convention: str = "paper", costs: str = DEFAULT_TABLE) -> dict[str, Any]:
    """As `energy_rows`, but with what depends on activities as {silent: constant, point: slope}."""
    points = needed_points(config)
    silent, *full = (energy_rows(estimate(config, _firing(points, at), convention, costs)) for at in (None, *points))

    def rule(number: int, name: str) -> Quantity:
        constant = silent["rows"][number]["ours"][name]
        slopes = (each["rows"][number]["ours"][name] - constant for each in full)
        return {SILENT: constant} | {point: slope for point, slope in zip(points, slopes, strict=True) if slope}

    kept = ("convention", "counted", "node", "dense_energy_mj")
    return {name: silent[name] for name in kept} | {
        "rows": [
            {
                "operator": row["operator"],
                "dense": row["dense"],
                "ours": {"mj": rule(number, "mj"), "count": rule(number, "count"), "kinds": row["ours"]["kinds"]},
            }
            for number, row in enumerate(silent["rows"])
        ]
    }


def _firing(points: tuple[Point, ...], at: Point | None) -> dict[Point, float]:
    return {point: float(point == at) for point in points}
