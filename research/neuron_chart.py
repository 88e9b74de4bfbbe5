"""What one value neuron does in its two windows: `python research/neuron_chart.py lapis_tiny.cifar10 --neuron 0 28 29`.

Writes OUT, docs/images/neuron.png by default, for the first packaged image.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lapis import models
from lapis._util.files import save_figure
from lapis.data.packaged import packaged_images
from lapis.deploy import integer
from lapis.deploy.arithmetic import Array
from lapis.deploy.network import Network
from lapis.deploy.simulate import fire
from lapis.deploy.thresholds import layer_thresholds
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.spikes import encode, split_on_off

# From Okabe and Ito's palette, for colour-blind readers as well.
FIRES, EXCITES, INHIBITS = "#d55e00", "#0072b2", "#999999"
# Synapses shown, strongest first; the sums include all synapses.
SHOWN = 40


@dataclass(frozen=True)
class NeuronHistory:
    """A neuron of the v layer of a block through its two windows.

    arrivals (T, synapses): weight of each spike that arrived at a step, 0 where none did. current, voltage (T,): I and
    V after each step. threshold (T,): what V is compared with in the neuron's own window. spike: the step at which it
    fired, or T. deadline: the last step at which it may fire. code: the code of the integer model.
    """

    window: int
    arrivals: Array
    current: Array
    voltage: Array
    threshold: Array
    spike: int
    deadline: int
    code: int


def follow_neuron(network: Network, image: Pixels, block: int, token: int, channel: int) -> NeuronHistory:
    """Follow the ON neuron of value `channel` at `token` through its input window and the window in which it fires."""
    config = network.config
    if not (0 <= block < config.depth and 0 <= token < config.tokens and 0 <= channel < config.width):
        raise LapisError(
            f"no neuron at block {block}, token {token}, channel {channel}; this network has {config.depth} blocks, "
            f"{config.tokens} tokens and {config.width} channels"
        )
    trace = integer.watch(network, image[None]).trace
    codes = trace[block, "attention_in"][0, token]
    row = 2 * config.width + channel
    own = network.blocks[block].qkv.rows(slice(row, row + 1))
    weight = own.weight[0].astype(np.int64)
    if network.low("attention_in") < 0:
        codes, weight = split_on_off(codes, config.window), np.concatenate([weight, -weight])
    arrivals = np.where(encode(codes, config.window), weight, 0)
    current = np.cumsum(arrivals.sum(axis=1))
    voltage = np.cumsum(current)
    low, min_code = network.low("v"), network.min_code("v", block)
    theta = layer_thresholds(own, low, config.window)[0]
    spikes = fire(lambda level: voltage[-1:] >= theta[level - low - 1], config.window, signed=False, min_code=min_code)
    spike = int(np.argmax(spikes[:, 0])) if spikes.any() else config.window
    threshold, code = theta[::-1][: config.window], int(trace[block, "v"][0, token, channel])
    return NeuronHistory(config.window, arrivals, current, voltage, threshold, spike, config.window - min_code, code)


def neuron_figure(history: NeuronHistory, title: str) -> Figure:
    """The incoming spikes, the current and the membrane that follow from them, and the falling threshold."""
    window = history.window
    figure = Figure(figsize=(7.2, 5.4), layout="constrained", dpi=120)
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
        membrane.plot([when], [history.voltage[-1]], "o", color=FIRES)
        membrane.axvline(when, color=FIRES, linewidth=1)
        label = f"fires at n = {history.spike}, so z = T - n = {window - history.spike}"
        membrane.text(0.02, 0.63, label, transform=membrane.transAxes, color=FIRES, fontsize=9)
    membrane.set(ylabel="membrane V", xlabel="step: the input window, then the window in which it fires")
    for axes in (spikes, current, membrane):
        axes.axvline(window - 0.5, color="#cccccc", linewidth=0.8, linestyle="--")
        axes.set_xlim(-0.7, 2 * window)
    membrane.set_xticks(range(0, 2 * window, 5))
    membrane.set_xticklabels([str(tick % window) for tick in range(0, 2 * window, 5)])
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--neuron", type=int, nargs=3, default=(0, 28, 29), metavar=("BLOCK", "TOKEN", "CHANNEL"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/neuron.png"))
    words = parser.parse_args()
    network = models.load(words.model).network
    block, token, channel = words.neuron
    history = follow_neuron(network, network.preprocess.resize(packaged_images().pixels[0]), block, token, channel)
    figure = neuron_figure(history, f"one value neuron: block {block}, token {token}, channel {channel}")
    save_figure(words.out, figure, metadata={"Software": None})


if __name__ == "__main__":
    main()
