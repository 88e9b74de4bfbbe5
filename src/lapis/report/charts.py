"""The chart that `lapis simulate` draws: what one neuron does in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapis.deploy.simulate import NeuronHistory
from lapis.errors import LapisError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    falls = "then the threshold falls one level per step"
    membrane.text(0.02, 0.75, falls, transform=membrane.transAxes, fontsize=8)
    if history.spike < window:
        when = window + history.spike
        membrane.plot([when], [history.voltage[-1]], "o", color=QUERY)
        membrane.axvline(when, color=QUERY, linewidth=1)
        label = f"fires at n = {history.spike}, so z = T - n = {window - history.spike}"
        membrane.text(0.02, 0.63, label, transform=membrane.transAxes, color=QUERY, fontsize=9)
    membrane.set(ylabel="membrane V", xlabel="step: the input window, then the window in which it fires")
    for axes in (spikes, current, membrane):
        axes.axvline(window - 0.5, color="#cccccc", linewidth=0.8, linestyle="--")
        axes.set_xlim(-0.7, 2 * window)
    membrane.set_xticks(range(0, 2 * window, 5))
    membrane.set_xticklabels([str(tick % window) for tick in range(0, 2 * window, 5)])
    return figure
