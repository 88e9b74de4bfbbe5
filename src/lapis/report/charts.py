"""Charts that commands draw: the energy of every operator, and what one neuron does in a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lapis._util.files import save_figure
from lapis.deploy.simulate import NeuronHistory
from lapis.energy.estimate import Estimate
from lapis.errors import LapisError
from lapis.report.page.page import energy_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = {"dense": ("dense", "#b8b8b8"), "quantized": ("plain quantized", "#e08a3c"), "ours": ("Lapis", "#1f4e9e")}
_INCHES_PER_BAR = 0.5
# From Okabe and Ito's palette, for colour-blind readers as well.
QUERY, KEY = "#d55e00", "#0072b2"
EXCITES, INHIBITS = KEY, "#999999"
# Synapses shown, strongest first; the sums include all synapses.
SHOWN = 40


def new_figure(width: float, height: float) -> Figure:
    """An empty figure without a window; the error says how to install matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError("pictures need matplotlib: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def energy_chart(estimate: Estimate, path: str | Path, title: str = "") -> Path:
    """Draw the estimate to a PNG: one pair of bars per operator, on a logarithmic axis."""
    target = Path(path)
    if target.suffix != ".png":
        raise LapisError(f"the chart is a PNG file; {target.name!r} does not end in .png")
    save_figure(target, energy_figure(estimate, title), dpi=150)
    return target


def energy_figure(estimate: Estimate, title: str = "") -> Figure:
    """The chart as a matplotlib figure."""
    rows = {row["operator"]: [row[name]["mj"] for name in _BARS] for row in energy_rows(estimate)["rows"]}
    rows = {name: energies for name, energies in rows.items() if any(energies)}
    rows["whole model"] = [sum(energies) for energies in zip(*rows.values(), strict=True)]

    figure = new_figure(8, 1.6 + _INCHES_PER_BAR * len(rows))
    axes = figure.add_subplot()
    positions = range(len(rows))
    for number, (label, colour) in enumerate(_BARS.values()):
        energies = [each[number] for each in rows.values()]
        places = [position + 0.27 * (number - 1) for position in positions]
        bars = axes.barh(places, energies, 0.27, color=colour, label=label)
        axes.bar_label(bars, [f"{energy:.3g}" if energy else "" for energy in energies], padding=3, fontsize=8)
    axes.set_yticks(list(positions), list(rows))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel(f"mJ per image ({estimate.convention.name} convention, {estimate.costs.node})")
    axes.set_title(title or f"{estimate.energy_mj:.4g} mJ and {estimate.latency_steps} time steps per image")
    figure.legend(loc="outside lower right", ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def neuron_figure(history: NeuronHistory, title: str) -> Figure:
    """The incoming spikes, the current and the membrane that follow from them, and the falling threshold."""
    window = history.window
    figure = new_figure(7.2, 5.4)
    spikes, current, membrane = figure.subplots(3, 1, sharex=True, height_ratios=(1.5, 1, 1.8))
    order = np.argsort(-np.abs(history.arrivals).sum(axis=0))[:SHOWN]
    step, synapse = np.nonzero(history.arrivals[:, order])
    weights = history.arrivals[:, order][step, synapse]
    size = 8 + 60 * np.abs(weights) / max(1e-9, float(np.abs(history.arrivals).max()))
    spikes.scatter(step, synapse, s=size, marker="|", c=np.where(weights > 0, EXCITES, INHIBITS), linewidths=1.6)
    spikes.set(ylabel=f"{len(order)} strongest\nsynapses", yticks=[])
    spikes.set_title(title, fontsize=10)
    spikes.text(0.98, 0.9, "blue excites, grey inhibits", transform=spikes.transAxes, fontsize=8, ha="right")
    listening, firing = np.arange(window), window + np.arange(window)
    flowing = np.append(history.current, history.current[-1])
    current.step(np.append(listening, window), flowing, where="post", color=EXCITES)
    current.axhline(0, color="#cccccc", linewidth=0.8)
    current.set_ylabel("current I")
    current.text(0.98, 0.8, "I += w on a spike", transform=current.transAxes, fontsize=8, ha="right")
    held = np.full(window + 1, history.voltage[-1])
    membrane.plot(np.concatenate([listening, firing, [2 * window]]), np.append(history.voltage, held), color=EXCITES)
    falling = np.append(history.threshold, history.threshold[-1])
    membrane.step(np.append(firing, 2 * window), falling, where="post", color="black")
    membrane.text(0.02, 0.85, "V += I at every step", transform=membrane.transAxes, fontsize=8)
    falls = "the threshold falls one level per step"
    membrane.text(0.98, 0.9, falls, transform=membrane.transAxes, fontsize=8, ha="right")
    if history.spike < window:
        when = window + history.spike
        membrane.plot([when], [history.voltage[-1]], "o", color=QUERY)
        membrane.axvline(when, color=QUERY, linewidth=1)
        label = f" fires at n = {history.spike}, so z = T - n = {window - history.spike}"
        membrane.text(0.98, 0.75, label, transform=membrane.transAxes, color=QUERY, fontsize=9, ha="right")
    membrane.set(ylabel="membrane V", xlabel="step: the input window, then the window in which it fires")
    for axes in (spikes, current, membrane):
        axes.axvline(window - 0.5, color="#cccccc", linewidth=0.8, linestyle="--")
        axes.set_xlim(-0.7, 2 * window)
    membrane.set_xticks(range(0, 2 * window, 5))
    membrane.set_xticklabels([str(tick % window) for tick in range(0, 2 * window, 5)])
    return figure
