"""The small networks that tests share: configurations, networks in torch, deployed networks, and images for them."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st

from benchmarks.synthetic import random_network
from lapis.config import AFFINITY_BITS, Coding, CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.convert import from_model
from lapis.deploy.network import Network
from lapis.deploy.schema import tensors
from lapis.nn import LapisViT, TableRelation, calibrate, register_relation
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess

Pixels = npt.NDArray[np.uint8]


class Reciprocal(TableRelation):
    """A = 1 / (1 + D / 4): a relation that is deployed as a table."""

    def log_affinity(self, distance: torch.Tensor) -> torch.Tensor:
        return -torch.log1p(distance / 4)


register_relation("reciprocal", Reciprocal)


def small_config(**changes: Any) -> LapisConfig:
    """A deployable network of two blocks on images of 8 pixels with the widest affinities; any field may be changed."""
    small = LapisConfig(image_size=8, patch_size=4, classes=3, width=6, depth=2, heads=2)
    return small.deployed().replace(**{"affinity_bits": AFFINITY_BITS, **changes})


def data_bytes(config: LapisConfig) -> int:
    """Bytes of all tensors of a packed file."""
    return sum(math.prod(shape) * kind.itemsize for kind, shape in (t.in_file(config) for t in tensors(config)))


def small_model(config: LapisConfig, seed: int = 0) -> tuple[LapisViT, Pixels]:
    """A calibrated network with random weights, and three smooth images of its size.

    Weights are large enough that activations leave the middle of their quantizers.
    """
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    preprocess = Preprocess(config.image_size)
    images = np.stack([preprocess.resize(image) for image in coarse])
    torch.manual_seed(seed)
    model = LapisViT(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("log_step", "log_tau")):
                continue
            spread = 1.0 if "norm" in name or "gamma" in name or "position" in name else 0.3
            parameter.add_(torch.randn_like(parameter) * spread * (0.3 if "norm" in name else 1.0))
    calibrate(model, [normalise(torch.from_numpy(images), preprocess)])
    return model, images


def shaken_network(config: LapisConfig) -> tuple[LapisViT, torch.Tensor]:
    """A network all of whose parameters are moved away from their usual start, and normalised random images."""
    torch.manual_seed(5)
    size = config.image_size
    model, images = LapisViT(config).eval(), torch.randn(6, 3, size, size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model, images


def small_network(config: LapisConfig, seed: int = 0, **options: Any) -> tuple[Network, Pixels]:
    """The same, converted."""
    model, images = small_model(config, seed)
    return from_model(model, **options), images


def wide_network(seed: int = 0, **changes: Any) -> Network:
    """A deployed network with random integers, of sizes that leave every kernel's tiles unfilled."""
    config = small_config(image_size=20, classes=7, width=48, heads=3)
    return random_network(config.replace(**changes), seed)


def images_for(network: Network, batch: int, seed: int = 0) -> Pixels:
    size = network.config.image_size
    return np.random.default_rng(seed).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)


@st.composite
def configs(draw: st.DrawFn) -> LapisConfig:
    """Deployable configurations of every style, window, width of weights and affinities, coding and deadlines."""
    heads, coding = draw(st.sampled_from([1, 2, 3])), st.sampled_from(get_args(Coding))
    config = small_config(
        style=draw(st.sampled_from(["vit", "beit"])),
        image_size=4 * draw(st.integers(1, 3)),
        classes=draw(st.integers(1, 5)),
        width=heads * draw(st.sampled_from([1, 4, 5])),
        depth=draw(st.integers(1, 2)),
        heads=heads,
        mlp_ratio=draw(st.integers(1, 3)),
        window=draw(st.integers(1, 20)),
        weight_bits=draw(st.sampled_from([2, 6, 8])),
        activation=draw(st.sampled_from(["gelu", "relu"])),
        coding=CodingByPoint(*(draw(coding) for _ in range(6))),
        affinity_bits=draw(st.sampled_from([15, 14, 9, 8, 5, 3, 1])),
    )
    return config.replace(min_code=draw(min_code(config)))


@st.composite
def min_code(draw: st.DrawFn, config: LapisConfig) -> MinCodeByPoint:
    """Deadlines for some points: none, one for all blocks, or one per block."""
    min_code = st.integers(1, config.window)
    per_block = st.tuples(*[min_code] * config.depth)
    return MinCodeByPoint(*(draw(st.one_of(st.just(1), min_code, per_block)) for _ in range(6)))
