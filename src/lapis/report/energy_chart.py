"""A bar chart of the energy of every operator, in the network and in the dense one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lapis._util.files import save_figure
from lapis.energy.estimate import Estimate
from lapis.errors import LapisError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS, _DENSE = "#1f4e9e", "#b8b8b8"
_INCHES_PER_BAR = 0.42


def energy_chart(estimate: Estimate, path: str | Path, title: str = "") -> Path:
    """Draw the estimate to a PNG: one pair of bars per operator, on a logarithmic axis."""
    target = Path(path)
    if target.suffix != ".png":
        raise LapisError(f"the chart is a PNG file; {target.name!r} does not end in .png")
    save_figure(target, energy_figure(estimate, title), dpi=150)
    return target


def energy_figure(estimate: Estimate, title: str = "") -> Figure:
    """The chart as a matplotlib figure."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError("the chart needs matplotlib; install it with: pip install 'lapis-snn[plot]'") from error
    ours = _by_operator([(row.operator, row.energy_mj) for row in estimate.rows])
    dense = _by_operator([(row.operator, row.energy_mj) for row in estimate.dense_rows])
    names = [name for name in dict.fromkeys((*ours, *dense)) if ours.get(name) or dense.get(name)]
    ours["whole model"], dense["whole model"] = estimate.energy_mj, estimate.dense_energy_mj
    names.append("whole model")

    figure = Figure(figsize=(8, 1.6 + _INCHES_PER_BAR * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    positions = range(len(names))
    for values, offset, colour, label in ((dense, -0.2, _DENSE, "dense"), (ours, 0.2, _OURS, "Lapis")):
        energies = [values.get(name, 0.0) for name in names]
        bars = axes.barh([position + offset for position in positions], energies, 0.4, color=colour, label=label)
        axes.bar_label(bars, [f"{energy:.3g}" if energy else "" for energy in energies], padding=3, fontsize=8)
    axes.set_yticks(list(positions), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel(f"mJ per image ({estimate.convention.name} convention, {estimate.costs.node})")
    axes.set_title(title or f"{estimate.energy_mj:.2f} mJ, {estimate.ratio:.1f} times less than dense")
    figure.legend(loc="outside lower right", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _by_operator(rows: list[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, energy in rows:
        sums[name] = sums.get(name, 0.0) + energy
    return sums
