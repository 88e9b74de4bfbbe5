"""A whole attention row, end to end: the energy and the area of its parts, added up for several kinds of attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lapis_hardware.lanes import FEW
from lapis_hardware.measure import Measured


@dataclass(frozen=True)
class LaneUse:
    """A lane: how often a row uses it, and how many of it stand side by side."""

    lane: str
    uses: int
    copies: float


@dataclass(frozen=True)
class RowCost:
    """One row of N keys by one kind of attention; `clocks` per pair, energies with glitches and without."""

    name: str
    clocks: int
    area_um2: float
    timed_pj: float
    settled_pj: float
    parts: dict[str, float]  # timed energy in pJ


def designs(parameters: Mapping[str, int]) -> dict[str, tuple[int, list[LaneUse]]]:
    """Clocks per pair and parts of each kind; the area of parts measured with a few channels is that of all."""
    keys, channels, window = parameters["KEYS"], parameters["CHANNELS"], parameters["WINDOW"]
    pairs = keys * channels
    few = channels / FEW
    ends = [LaneUse("readout", channels, few), LaneUse("sequencer", 1, 1)]
    affinity = [LaneUse("lookup", keys, 1), LaneUse("row sum", keys, 1), LaneUse("exponent", 1, 1)]

    def floats(kind: str) -> list[LaneUse]:
        return [LaneUse(f"{name} {kind}", 2 * pairs, 2 * channels) for name in ("multiply", "add")]

    return {
        "Lapis, from codes": (
            1, [LaneUse("minimum", keys, 1), LaneUse("code sum", 2, 1), *affinity, LaneUse("value", pairs, few), *ends],
        ),
        "Lapis, from spikes": (
            window,
            [LaneUse("temporal", keys, 1), LaneUse("fired", 2, 2), *affinity,
             LaneUse("events", pairs, channels), *ends],
        ),
        "dot product of the same codes, affinities as ours": (
            1, [LaneUse("dot", keys, 1), *affinity, LaneUse("value", pairs, few), *ends],
        ),
        "dot product of the same codes, no softmax": (
            1, [LaneUse("dot", keys, 1), LaneUse("value dot", pairs, few), *ends],
        ),
        "int8, softmax left out": (1, [LaneUse("dot int8", keys, 1), LaneUse("value int8", pairs, few), *ends]),
        "FP16, softmax left out": (1, floats("fp16")),
        "FP32, softmax left out": (1, floats("fp32")),
    }  # fmt: skip


def rows(found: Mapping[str, Measured], parameters: Mapping[str, int]) -> list[RowCost]:
    """Every kind of attention whose lanes were all measured."""
    made = []
    for name, (clocks, parts) in designs(parameters).items():
        if all(part.lane in found for part in parts):
            made.append(
                RowCost(
                    name=name,
                    clocks=clocks,
                    area_um2=round(sum(found[part.lane].area_um2 * part.copies for part in parts), 1),
                    timed_pj=round(sum(found[part.lane].timed_pj * part.uses for part in parts), 3),
                    settled_pj=round(sum(found[part.lane].settled_pj * part.uses for part in parts), 3),
                    parts={part.lane: round(found[part.lane].timed_pj * part.uses, 3) for part in parts},
                )
            )
    return made
