"""Networks and images at the edge of every bound: the engine answers as the integer model on every instruction set.

`make sanitize` runs these under the address and undefined-behaviour sanitizers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic import random_network
from lapis.config import CodingByPoint, LapisConfig
from lapis.deploy import arithmetic, integer
from lapis.deploy.network import Block, Layer, Network
from lapis.deploy.schema import DELTA_LIMIT, MAX_MAGNITUDE
from lapis.deploy.simulate import Simulator
from lapis.preprocess import Pixels
from lapis.runtime.engine import Engine

# Sizes that leave every kernel's tiles unfilled, and the largest window.
WIDEST = LapisConfig(image_size=20, patch_size=4, classes=7, width=39, depth=1, heads=3, window=63).deployed()


def pictures(size: int) -> Pixels:
    """Black, white, two checkerboards, columns, and noise of the two extremes."""
    side = np.arange(size)
    checkers = (side[:, None] + side[None, :]) % 2 * 255
    columns = np.broadcast_to(side % 2 * 255, (size, size))
    noise = np.random.default_rng(0).integers(0, 2, (size, size)) * 255
    planes = [np.zeros((size, size)), np.full((size, size), 255), checkers, 255 - checkers, columns, noise]
    return np.repeat(np.stack(planes).astype(np.uint8)[..., None], 3, axis=3)


def signs(shape: tuple[int, ...], pattern: str) -> Any:
    index = np.indices(shape).sum(axis=0)
    return {"all high": np.ones(shape), "all low": -np.ones(shape), "checkers": 1 - index % 2 * 2}[pattern]


def extreme(network: Network, pattern: str) -> Network:
    """Every weight at the largest size of its bits, every scale and shift as large as the bounds allow."""
    window, largest = network.config.window, 2 ** (network.config.weight_bits - 1) - 1

    def layer(old: Layer, limit: float) -> Layer:
        weight = (signs(old.weight.shape, pattern) * largest).astype(np.int8)
        reach = float(np.abs(weight.astype(np.float64)).sum(axis=1).max() * window)
        scale = np.full_like(old.scale, 0.4 * limit / reach)
        return Layer(weight, scale, (signs(old.shift.shape, "checkers") * 0.4 * limit).astype(np.float32))

    def block(old: Block) -> Block:
        gain = (signs(old.attention_norm.gain.shape, "checkers") * 1e28).astype(np.float32)
        return dataclasses.replace(
            old,
            attention_norm=dataclasses.replace(old.attention_norm, gain=gain),
            qkv=layer(old.qkv, MAX_MAGNITUDE),
            proj=layer(old.proj, DELTA_LIMIT),
            fc1=layer(old.fc1, MAX_MAGNITUDE),
            fc2=layer(old.fc2, DELTA_LIMIT),
            readout=dataclasses.replace(old.readout, scale=np.float32(9e29), shift=np.float32(-9e29)),
        )

    patches = network.patch_weight
    room = ((1 << 31) - 1) // 255 // patches.shape[1]
    limit = arithmetic.STREAM_LIMIT
    return dataclasses.replace(
        network,
        blocks=tuple(block(one) for one in network.blocks),
        patch_weight=(signs(patches.shape, pattern) * min(room, 32767)).astype(np.int16),
        patch_shift=np.zeros_like(network.patch_shift),
        position=(signs(network.position.shape, pattern) * limit).astype(np.int32),
        head_weight=np.full_like(network.head_weight, -32768),
        head_bias=np.full_like(network.head_bias, (1 << 52) - 1),
    )


@pytest.mark.parametrize("pattern", ["all high", "all low", "checkers"])
@pytest.mark.parametrize("bits", [2, 6, 8])
def test_extreme_weights_and_images_equal_the_integer_model(isa: str, pattern: str, bits: int) -> None:
    config = WIDEST.replace(weight_bits=bits, coding=CodingByPoint.all("signed" if bits != 2 else "unsigned"))
    network = extreme(random_network(config), pattern)
    images = pictures(config.image_size)
    want = integer.watch(network, images)
    for threads, low_memory in ((1, False), (2, True)):
        engine = Engine(network, threads, low_memory)
        found = engine.watch(images)
        engine.close()
        assert (found.logits == want.logits).all()
        assert all((found.trace[key] == want.trace[key]).all() for key in want.trace)


@pytest.mark.parametrize("style", ["vit", "beit"])
def test_extreme_images_of_an_ordinary_network_equal_the_integer_model(isa: str, style: str) -> None:
    config = WIDEST.replace(style=style)
    network = random_network(config)
    images = pictures(config.image_size)
    engine = Engine(network, 2)
    assert (engine.run(images) == integer.run(network, images)).all()
    engine.close()


@pytest.mark.parametrize("pattern", ["all high", "checkers"])
def test_extreme_networks_as_spikes_equal_the_integer_model_without_a_warning(pattern: str) -> None:
    config = WIDEST.replace(image_size=8, width=6, heads=2, coding=CodingByPoint.all("signed"))
    network = extreme(random_network(config), pattern)
    # A scale may be near the largest float where its weights are zero.
    (block,) = network.blocks
    silent = Layer(np.zeros_like(block.fc1.weight), np.full_like(block.fc1.scale, 3e38), block.fc1.shift)
    network = dataclasses.replace(network, blocks=(dataclasses.replace(block, fc1=silent),))
    images = pictures(config.image_size)[:3]
    assert (Simulator(network).run(images)[0] == integer.run(network, images)).all()
