"""Networks with random weights for timing the engine. Speed depends on the shape and on how many neurons fire."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.synthetic import random_network, with_activity
from lapis.config import LapisConfig, preset
from lapis.deploy.network import Network
from lapis.preprocess import Pixels
from lapis.trace import POINTS, Point

# ViT-S/16 at 224 pixels, and the tiny network at 96.
SHAPES = {
    "small": preset("lapis_small").deployed(),
    "tiny": preset("lapis_tiny", image_size=96, classes=10).deployed(),
}
# How far the inputs of GELU are shifted down in the quiet network; then .13 of its neurons fire (ViT-S shape).
QUIETER = np.float32(1.1)

# What the paper's energies imply: 3 rho_attn + rho_out = 1.25, rho_mlp + rho_hid = .31 and rho_qkv = .39.
PAPER_ACTIVITY: dict[Point, float] = {
    "attention_in": 0.39, "q": 0.31, "k": 0.31, "v": 0.31, "readout": 0.31, "mlp_in": 0.21, "mlp_hidden": 0.10,
}  # fmt: skip


def quiet_network(config: LapisConfig) -> Network:
    """A random network in which few neurons fire after GELU.

    In a short training run of DeiT-Ti with unsigned codes, .44 to .47 of the neurons fired after the norms and .11
    after GELU; this network is similar.
    """
    network = random_network(config)
    blocks = tuple(
        dataclasses.replace(block, fc1=dataclasses.replace(block.fc1, shift=block.fc1.shift - QUIETER))
        for block in network.blocks
    )
    return dataclasses.replace(network, blocks=blocks)


def dot_network(config: LapisConfig) -> Network:
    """The same with dot products in place of l1 distances; all else is equal."""
    return quiet_network(config.replace(relation="dot"))


def sparse_network(config: LapisConfig) -> Network:
    """A random network at the activities that the paper's figures imply, which it records, as a trained one does."""
    return with_activity(random_network(config), PAPER_ACTIVITY, random_images(config, 1))


def sparse_network_dense(config: LapisConfig) -> Network:
    """The same network with a record that says that every neuron fires: the engine then computes all layers densely."""
    return dataclasses.replace(sparse_network(config), activity=dict.fromkeys(POINTS, (1.0,) * config.depth))


def random_images(config: LapisConfig, batch: int) -> Pixels:
    """The same random bytes at every call."""
    shape = (batch, config.image_size, config.image_size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
