"""The energy per image: the count of each operation times its cost, row by row, for a network and the dense one."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.energy import operations
from lapis.energy.activity import Activities
from lapis.energy.conventions import CONVENTIONS, GATES, Convention, convention_named
from lapis.energy.costs import DEFAULT_TABLE, PJ_PER_MJ, Costs, Kind, load_costs
from lapis.energy.operations import MEMORY, Memory, NetworkPart, Operation
from lapis.errors import LapisError
from lapis.trace import Point, Tally


@dataclass(frozen=True)
class PricedOperation(Operation):
    """An operation with its price: energy = count x cost; activity = count / dense where spikes decide the count."""

    cost_pj: float = 0.0

    @property
    def activity(self) -> float | None:
        """Share of the dense operations that spikes caused; None where spikes do not decide the count."""
        return self.count / self.dense if self.driven else None

    @property
    def energy_mj(self) -> float:
        return self.count * self.cost_pj / PJ_PER_MJ

    def to_dict(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "part": self.part,
            "block": self.block,
            "activity": self.activity,
            "count": self.count,
            "kind": self.kind,
            "cost_pj": self.cost_pj,
            "energy_mj": self.energy_mj,
        }


@dataclass(frozen=True)
class Estimate:
    """Rows of one network and of its dense counterpart, one per block and operator, under one convention."""

    config: LapisConfig
    convention: Convention
    costs: Costs
    memory: Memory
    block_rows: tuple[PricedOperation, ...]
    dense_block_rows: tuple[PricedOperation, ...]

    @property
    def rows(self) -> list[PricedOperation]:
        """One row per operator, summed over the blocks."""
        return _over_blocks(self.block_rows)

    @property
    def dense_rows(self) -> list[PricedOperation]:
        return _over_blocks(self.dense_block_rows)

    @property
    def energy_mj(self) -> float:
        """The whole model: the sum of `rows`."""
        return total_mj(self.rows)

    @property
    def attention_mj(self) -> float:
        """The attention path: the rows of part `attention`."""
        return total_mj(self.rows, "attention")

    @property
    def dense_energy_mj(self) -> float:
        return total_mj(self.dense_rows)

    @property
    def dense_attention_mj(self) -> float:
        return total_mj(self.dense_rows, "attention")

    @property
    def ratio(self) -> float:
        """How many times less energy than the dense network."""
        return _ratio(self.dense_energy_mj, self.energy_mj)

    @property
    def attention_ratio(self) -> float:
        return _ratio(self.dense_attention_mj, self.attention_mj)

    def summary(self) -> dict[str, Any]:
        """The sums and ratios, with their convention."""
        return {
            "convention": self.convention.name,
            "counted": self.convention.counted,
            "attention_mj": self.attention_mj,
            "energy_mj": self.energy_mj,
            "dense_attention_mj": self.dense_attention_mj,
            "dense_energy_mj": self.dense_energy_mj,
            # JSON has no infinity: a network that uses no energy has no ratio.
            "attention_ratio": self.attention_ratio if self.attention_mj else None,
            "ratio": self.ratio if self.energy_mj else None,
        }

    def to_dict(self) -> dict[str, Any]:
        """The summary, and everything it was computed from."""
        return self.summary() | {
            "memory": self.memory,
            "costs": self.costs.to_dict(),
            "config": self.config.to_dict(),
            "operators": [row.to_dict() for row in self.rows],
            "blocks": [row.to_dict() for row in self.block_rows],
            "dense_operators": [row.to_dict() for row in self.dense_rows],
        }

    def to_csv(self, per_block: bool = False) -> str:
        """Every row of both networks, then the sums; the column `network` names the network."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["network", "part", "operator", "block", "activity", "count", "kind", "cost_pj", "energy_mj"])
        ours, dense = (
            (self.block_rows, self.dense_block_rows) if per_block else (tuple(self.rows), tuple(self.dense_rows))
        )
        for network, rows in (("lapis", ours), ("dense", dense)):
            for row in rows:
                cells = [row.part, row.operator, row.block, row.activity, row.count, row.kind, row.cost_pj]
                table.writerow([network, *("" if cell is None else cell for cell in cells), row.energy_mj])
        for network, rows in (("lapis", ours), ("dense", dense)):
            table.writerow([network, "sum", "attention path", "", "", "", "", "", total_mj(rows, "attention")])
            table.writerow([network, "sum", "whole model", "", "", "", "", "", total_mj(rows)])
        return text.getvalue()


def total_mj(rows: Iterable[PricedOperation], part: NetworkPart | None = None) -> float:
    """The sum of the rows' energies, of one part or of all, rounded once."""
    return math.fsum(row.energy_mj for row in rows if part in (None, row.part))


def estimate(
    config: LapisConfig,
    activities: Tally | Activities | Mapping[Point, float],
    convention: str | None = None,
    costs: str | Costs = DEFAULT_TABLE,
    memory: Memory = "off",
) -> Estimate:
    """The energy of one image of `config`, for measured activities (a tally) or given ones (one number per point).

    Without a convention, the one that the costs are made for: `gates` for tables of circuits, else `paper`.
    """
    if memory not in MEMORY:
        raise LapisError(f"memory={memory!r} is unknown; use {', '.join(MEMORY)}")
    table = costs if isinstance(costs, Costs) else load_costs(costs)
    chosen = convention_named(convention or (GATES.name if table.circuits else "paper"))
    rho = _activities(config, activities)
    ours = operations.spiking(config, rho, chosen)
    dense = operations.dense(config, chosen)
    ours += operations.fetches(config, ours, memory, table.float_bytes)
    dense += operations.fetches(config.replace(weight_bits=FLOAT_WEIGHTS), dense, memory, table.float_bytes)
    return Estimate(config, chosen, table, memory, _priced(ours, table, config), _priced(dense, table, config))


def side_by_side(
    config: LapisConfig,
    activities: Tally | Activities | Mapping[Point, float],
    costs: str | Costs = DEFAULT_TABLE,
    memory: Memory = "off",
) -> list[Estimate]:
    """The same network under every convention that the costs can price."""
    table = costs if isinstance(costs, Costs) else load_costs(costs)
    names = [*CONVENTIONS, *([GATES.name] if table.circuits else [])]
    return [estimate(config, activities, name, table, memory) for name in names]


def _activities(config: LapisConfig, given: Tally | Activities | Mapping[Point, float]) -> Activities:
    if isinstance(given, Activities):
        given.check(config)
        return given
    if isinstance(given, Tally):
        return Activities.measured(config, given)
    return Activities.uniform(config, given)


def _priced(counted: Iterable[Operation], table: Costs, config: LapisConfig) -> tuple[PricedOperation, ...]:
    return tuple(
        PricedOperation(**vars(item), cost_pj=table.price(item.kind, config.affinity_bits)) for item in counted
    )


def _over_blocks(rows: Iterable[PricedOperation]) -> list[PricedOperation]:
    groups: dict[tuple[str, NetworkPart, Kind], list[PricedOperation]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.part, row.kind), []).append(row)
    return [
        PricedOperation(
            operator,
            part,
            None,
            kind,
            math.fsum(row.count for row in group),
            sum(row.dense for row in group),
            group[0].driven,
            group[0].cost_pj,
        )
        for (operator, part, kind), group in groups.items()
    ]


def _ratio(dense: float, ours: float) -> float:
    return dense / ours if ours else math.inf


def energy_of(config: LapisConfig, tally: Tally) -> dict[str, Any] | None:
    """The energy per image at the measured activities, under the paper's convention; None without activities."""
    if not config.quantize or not tally.images:
        return None
    return estimate(config, tally).summary()
