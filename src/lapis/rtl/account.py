"""A whole attention row, end to end: the energy and the area of its parts, added up for several kinds of attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lapis.rtl.lanes import FEW
from lapis.rtl.measure import Measured


@dataclass(frozen=True)
class Part:
    """A lane: how often a row uses it, and how many of it stand side by side."""

    lane: str
    uses: int
    copies: float


@dataclass(frozen=True)
class Row:
    """One row of N keys by one kind of attention; `clocks` per pair, energies with glitches and without."""

    name: str
    clocks: int
    area_um2: float
    timed_pj: float
    settled_pj: float
    parts: dict[str, float]  # timed energy in pJ


def designs(parameters: Mapping[str, int]) -> dict[str, tuple[int, list[Part]]]:
    """Clocks per pair and parts of each kind; the area of parts measured with a few channels is that of all."""
    keys, channels, window = parameters["KEYS"], parameters["CHANNELS"], parameters["WINDOW"]
    pairs = keys * channels
    few = channels / FEW
    ends = [Part("readout", channels, few), Part("sequencer", 1, 1)]
    affinity = [Part("lookup", keys, 1), Part("row sum", keys, 1), Part("exponent", 1, 1)]

    def floats(kind: str) -> list[Part]:
        return [Part(f"{name} {kind}", 2 * pairs, 2 * channels) for name in ("multiply", "add")]

    return {
        "Lapis, from codes": (
            1, [Part("minimum", keys, 1), Part("code sum", 2, 1), *affinity, Part("value", pairs, few), *ends],
        ),
        "Lapis, from spikes": (
            window, [Part("temporal", keys, 1), Part("fired", 2, 2), *affinity, Part("events", pairs, channels), *ends],
        ),
        "dot product of the same codes, no softmax": (
            1, [Part("dot", keys, 1), Part("value dot", pairs, few), *ends],
        ),
        "int8, softmax left out": (1, [Part("dot int8", keys, 1), Part("value int8", pairs, few), *ends]),
        "FP16, softmax left out": (1, floats("fp16")),
        "FP32, softmax left out": (1, floats("fp32")),
    }  # fmt: skip


def rows(found: Mapping[str, Measured], parameters: Mapping[str, int]) -> list[Row]:
    """Every kind of attention whose lanes were all measured."""
    made = []
    for name, (clocks, parts) in designs(parameters).items():
        if all(part.lane in found for part in parts):
            made.append(
                Row(
                    name=name,
                    clocks=clocks,
                    area_um2=round(sum(found[part.lane].area_um2 * part.copies for part in parts), 1),
                    timed_pj=round(sum(found[part.lane].timed_pj * part.uses for part in parts), 3),
                    settled_pj=round(sum(found[part.lane].settled_pj * part.uses for part in parts), 3),
                    parts={part.lane: round(found[part.lane].timed_pj * part.uses, 3) for part in parts},
                )
            )
    return made
