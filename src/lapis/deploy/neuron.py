"""Follow one neuron through a real run, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.deploy import integer
from lapis.deploy.network import Layer, Network
from lapis.deploy.simulate import fire
from lapis.deploy.thresholds import layer_thresholds
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.spikes import encode, split_on_off

Array = npt.NDArray[Any]


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
    row = slice(2 * config.width + channel, 2 * config.width + channel + 1)
    layer = network.blocks[block].qkv
    own = Layer(layer.weight[row], layer.scale[row], layer.shift[row])
    weight = own.weight[0].astype(np.int64)
    if network.low("attention_in") < 0:
        codes, weight = split_on_off(codes, config.window), np.concatenate([weight, -weight])
    arrivals = np.where(encode(codes, config.window), weight, 0)
    current = np.cumsum(arrivals.sum(axis=1))
    voltage = np.cumsum(current)
    theta = layer_thresholds(own, network.low("v"), config.window)[0]
    deadline = config.window - network.min_code("v", block)
    spikes = fire(
        lambda level: voltage[-1:] >= theta[level - network.low("v") - 1],
        config.window, signed=False, min_code=network.min_code("v", block),
    )  # fmt: skip
    return NeuronHistory(
        window=config.window,
        arrivals=arrivals,
        current=current,
        voltage=voltage,
        threshold=theta[::-1][: config.window],
        spike=int(np.argmax(spikes[:, 0])) if spikes.any() else config.window,
        deadline=deadline,
        code=int(trace[block, "v"][0, token, channel]),
    )
