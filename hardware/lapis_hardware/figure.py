"""Area against energy of measured score lanes, one dot each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lapis import LapisError
from lapis_hardware.measure import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Scores by distance and by product; labels of the two that lie close go to either side.
OURS = {"minimum": -16, "difference": 8, "temporal": 8}
RIVALS = ("dot", "dot int8")
OUR_COLOUR, RIVAL_COLOUR = "#0072b2", "#d55e00"
FLOATS = {"fp16": "FP16", "fp32": "FP32"}


class Dot(NamedTuple):
    """A lane of all channels: what it is, its area, its energy without glitches and with them."""

    label: str
    ours: bool
    area_um2: float
    settled_pj: float
    timed_pj: float
    label_offset: int


def gates_figure(found: Mapping[str, Measured], channels: int, library: str) -> Figure:
    """Score lanes: a line from the energy without glitches to the energy with them, and a dot at its upper end."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError("pictures need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(6.4, 4.2), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    for dot in dots(found, channels):
        colour, mark = (OUR_COLOUR, "o") if dot.ours else (RIVAL_COLOUR, "s")
        axes.plot([dot.settled_pj, dot.timed_pj], [dot.area_um2] * 2, color=colour, linewidth=1.2, alpha=0.6)
        axes.plot([dot.timed_pj], [dot.area_um2], mark, color=colour, markersize=8)
        axes.annotate(
            dot.label, (dot.timed_pj, dot.area_um2), xytext=(0, dot.label_offset), textcoords="offset points",
            fontsize=8, ha="center",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.16)
    axes.set_xlabel("pJ per pair: from without glitches (end of the line) to with them (mark)")
    axes.set_ylabel("square micrometres of cells")
    axes.set_title(f"score lanes in {library}; wires, memories and clock tree not counted", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def dots(found: Mapping[str, Measured], channels: int) -> list[Dot]:
    """The score lanes that were measured; a float lane is a product and an addition per channel."""
    made = []
    for name in (*OURS, *RIVALS):
        if name in found:
            one = found[name]
            made.append(Dot(one.about, name in OURS, one.area_um2, one.settled_pj, one.timed_pj, OURS.get(name, 8)))
    for kind, label in FLOATS.items():
        parts = [found[name] for name in (f"multiply {kind}", f"add {kind}") if name in found]
        if len(parts) == 2:
            area, settled, timed = (
                channels * sum(getattr(part, name) for part in parts) for name in ("area_um2", "settled_pj", "timed_pj")
            )
            made.append(Dot(f"dot product of {label}", False, area, settled, timed, 8))
    return made
