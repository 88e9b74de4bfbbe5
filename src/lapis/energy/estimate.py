"""The energy per image: the count of each operation times its cost, row by row, for a network and its rivals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.energy import operations
from lapis.energy.activity import Activities
from lapis.energy.conventions import CONVENTIONS, GATES, Convention, convention_named
from lapis.energy.costs import DEFAULT_TABLE, Costs, Kind, load_costs
from lapis.energy.counts import check_points, window_steps
from lapis.energy.network import SpikingNetwork
from lapis.energy.operations import MEMORY, Memory, NetworkPart, Operation
from lapis.errors import LapisError
from lapis.trace import Point, Tally

# lapis: the network itself.   quantized: the same as a plain quantized network.   skipping: that, with zeros skipped.
# dense: the dense network of the same shape, in the numbers that the cost table calls a MAC.
Rival = Literal["quantized", "skipping", "dense"]
Given: TypeAlias = Tally | Activities | Mapping[Point, float] | None
Rows: TypeAlias = tuple[Operation, ...]


@dataclass(frozen=True)
class Estimate:
    """Rows of one network and of its rivals, one per block and operator, under one convention."""

    config: LapisConfig | SpikingNetwork
    convention: Convention
    costs: Costs
    memory: Memory
    block_rows: Rows
    rivals: Mapping[Rival, Rows]

    @property
    def rows(self) -> list[Operation]:
        """One row per operator, summed over the blocks."""
        return _over_blocks(self.block_rows)

    def networks(self) -> dict[str, list[Operation]]:
        """The rows of this network, called lapis, and of its rivals, summed over the blocks."""
        return {"lapis": self.rows, **{rival: _over_blocks(rows) for rival, rows in self.rivals.items()}}

    @property
    def energy_mj(self) -> float:
        """The whole model: the sum of `rows`."""
        return total_mj(self.rows)

    @property
    def attention_mj(self) -> float:
        """The attention path: the rows of part `attention`."""
        return total_mj(self.rows, "attention")

    def rival_mj(self, rival: Rival, part: NetworkPart | None = None) -> float:
        """A rival's energy, of the whole model or of one part."""
        return total_mj(_over_blocks(self.rivals[rival]), part)

    @property
    def dense_energy_mj(self) -> float:
        return self.rival_mj("dense")

    @property
    def ratio(self) -> float:
        """How many times less energy than the dense network."""
        return self.against("dense") or math.inf

    def against(self, rival: Rival) -> float | None:
        """How many times less energy than a rival; None without this rival, or where this network uses no energy."""
        return self.rival_mj(rival) / self.energy_mj if rival in self.rivals and self.energy_mj else None

    @property
    def latency_steps(self) -> int:
        """Time steps until the answer: of all windows in turn, or of the network's own clock."""
        return window_steps(self.config) if isinstance(self.config, LapisConfig) else self.config.time_steps

    def summary(self) -> dict[str, Any]:
        """The sums and ratios, with their convention; JSON has no infinity, so a ratio may be None."""
        dense_attention, attention = self.rival_mj("dense", "attention"), self.attention_mj
        return {
            "convention": self.convention.name,
            "counted": self.convention.counted,
            "latency_steps": self.latency_steps,
            "attention_mj": attention,
            "energy_mj": self.energy_mj,
            "quantized_mj": self.rival_mj("quantized") if "quantized" in self.rivals else None,
            "skipping_mj": self.rival_mj("skipping") if "skipping" in self.rivals else None,
            "dense_attention_mj": dense_attention,
            "dense_energy_mj": self.dense_energy_mj,
            "quantized_ratio": self.against("quantized"),
            "skipping_ratio": self.against("skipping"),
            "attention_ratio": dense_attention / attention if attention else None,
            "ratio": self.against("dense"),
        }

    def to_dict(self) -> dict[str, Any]:
        """The summary, and everything it was computed from."""
        return self.summary() | {
            "memory": self.memory,
            "costs": self.costs.fields,
            "config": self.config.to_dict(),
            "operators": [row.to_dict() for row in self.rows],
            "blocks": [row.to_dict() for row in self.block_rows],
            **{
                f"{name}_operators": [row.to_dict() for row in rows]
                for name, rows in self.networks().items()
                if name != "lapis"
            },
        }


def total_mj(rows: Iterable[Operation], part: NetworkPart | None = None) -> float:
    """The sum of the rows' energies, of one part or of all, rounded once."""
    return math.fsum(row.energy_mj for row in rows if part in (None, row.part))


def estimate(
    config: LapisConfig | SpikingNetwork,
    activities: Given = None,
    convention: str | None = None,
    costs: str | Costs = DEFAULT_TABLE,
    memory: Memory = "off",
) -> Estimate:
    """The energy of one image of `config`, for measured activities (a tally) or given ones (one number per point).

    Another spiking network has its firing rates in itself. Without a convention, the one that the costs are made for:
    `gates` for tables of circuits, else `paper`.
    """
    if memory not in MEMORY:
        raise LapisError(f"memory={memory!r} is unknown; use {', '.join(MEMORY)}")
    table = costs if isinstance(costs, Costs) else load_costs(costs)
    ours_here = isinstance(config, LapisConfig)
    chosen = convention_named(convention or (GATES.name if table.circuits and ours_here else "paper"))
    bits = config.affinity_bits if isinstance(config, LapisConfig) else 1
    rivals: dict[Rival, list[Operation]] = {}
    if isinstance(config, LapisConfig):
        rho = _activities(config, activities)
        counted = operations.spiking(config, rho, chosen)
        if config.quantize:
            rivals["quantized"] = operations.quantized(config, chosen)
            rivals["skipping"] = operations.quantized(config, chosen, rho)
        rivals["dense"] = operations.dense(config, chosen)
        for rival, rows in ((None, counted), *rivals.items()):
            stored = config.replace(weight_bits=FLOAT_WEIGHTS) if rival == "dense" else config
            rows += operations.fetches(stored, rows, memory, table.float_bytes)
    else:
        if memory != "off":
            raise LapisError(f"memory={memory} needs the weights of {config.name}, which its file does not list")
        counted, rivals["dense"] = config.operations(chosen), config.dense()

    def priced(rows: list[Operation]) -> Rows:
        return tuple(replace(row, cost_pj=table.price(row.kind, bits, row.operands)) for row in rows)

    return Estimate(config, chosen, table, memory, priced(counted), {name: priced(of) for name, of in rivals.items()})


def side_by_side(
    config: LapisConfig | SpikingNetwork,
    activities: Given = None,
    costs: str | Costs = DEFAULT_TABLE,
    memory: Memory = "off",
) -> list[Estimate]:
    """The same network under every convention that the costs can price."""
    table = costs if isinstance(costs, Costs) else load_costs(costs)
    gates = [GATES.name] if table.circuits and isinstance(config, LapisConfig) else []
    return [estimate(config, activities, name, table, memory) for name in [*CONVENTIONS, *gates]]


def _activities(config: LapisConfig, given: Given) -> Activities:
    if isinstance(given, Activities):
        check_points(config, given.rates)
        return given
    if isinstance(given, Tally):
        return Activities.measured(config, given)
    return Activities.uniform(config, given or {})


def _over_blocks(rows: Iterable[Operation]) -> list[Operation]:
    groups: dict[tuple[str, NetworkPart, Kind], list[Operation]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.part, row.kind), []).append(row)
    return [
        replace(
            group[0], block=None, count=math.fsum(row.count for row in group), dense=sum(row.dense for row in group)
        )
        for group in groups.values()
    ]


def energy_of(config: LapisConfig, tally: Tally) -> dict[str, Any] | None:
    """The energy per image at the measured activities, under the paper's convention; None without activities."""
    if not config.quantize or not tally.images:
        return None
    return estimate(config, tally).summary()


def describe(summary: Mapping[str, Any], int8_ratio: float | None = None) -> str:
    """A summary in one sentence, the closest rival first."""
    names = ("quantized_ratio", "skipping_ratio", "ratio")
    quantized, skipping, dense = ("-" if summary[name] is None else f"{summary[name]:.1f}" for name in names)
    int8 = "" if int8_ratio is None else f"dense int8 {int8_ratio:.1f}, "
    return (
        f"estimated {summary['energy_mj']:.4f} mJ and {summary['latency_steps']} time steps per image; the same "
        f"network plain quantized takes {quantized} times as much ({skipping} if it skips zeros), {int8}"
        f"dense FP32 {dense} ({summary['convention']} convention)"
    )
