"""The deployed network is frozen, needs no torch and refuses what it cannot run."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lapis.convert.fold import from_model
from lapis.deploy import arithmetic, integer
from lapis.deploy.integer import BATCH
from lapis.deploy.network import Network, named_arrays
from lapis.errors import LapisError
from tests.networks import small_config, small_model

CONFIG = small_config()


@pytest.fixture(scope="module")
def network() -> Network:
    return from_model(small_model(CONFIG)[0], class_names=("a", "b", "c"))


def test_no_array_of_a_network_can_be_written(network: Network) -> None:
    for name, array, _ in named_arrays(network):
        assert not array.flags.writeable, name
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.fraction_bits = 3  # type: ignore[misc]


def test_a_batch_answers_as_its_images_do_alone(network: Network) -> None:
    images = np.random.default_rng(1).integers(0, 256, (BATCH + 1, 8, 8, 3), dtype=np.uint8)
    together = integer.run(network, images)
    assert (together == np.concatenate([integer.run(network, image[None]) for image in images])).all()
    assert (together == integer.watch(network, images).logits).all()


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 8, 8, 3), dtype=np.float32),
        np.zeros((8, 8, 3), dtype=np.uint8),
        np.zeros((1, 9, 9, 3), dtype=np.uint8),
        np.zeros((0, 8, 8, 3), dtype=np.uint8),
    ],
)
def test_images_of_another_kind_are_refused(network: Network, images: Any) -> None:
    with pytest.raises(LapisError, match="this network takes bytes"):
        integer.run(network, images)


def _changed(network: Network, path: str, value: Any) -> Network:
    """The network with one array of block 0, or of its own, replaced."""
    *owners, last = path.split(".")
    chain: list[Any] = [network.blocks[0] if owners[:1] == ["block"] else network]
    for owner in owners[1:]:
        chain.append(getattr(chain[-1], owner))
    new = dataclasses.replace(chain[-1], **{last: value(getattr(chain[-1], last).copy())})
    for owner, name in zip(reversed(chain[:-1]), reversed(owners[1:]), strict=True):
        new = dataclasses.replace(owner, **{name: new})
    return new if isinstance(new, Network) else dataclasses.replace(network, blocks=(new, *network.blocks[1:]))


def _filled(value: float) -> Any:
    return lambda array: np.full_like(array, value)


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("block.qkv.weight", _filled(32), "6 bits"),
        ("block.qkv.scale", _filled(0.0), "positive"),
        ("block.qkv.scale", _filled(np.nan), "NaN"),
        ("block.fc2.scale", _filled(1e12), "reaches beyond"),
        ("block.fc1.shift", _filled(1e35), "reaches beyond"),
        ("block.attention_norm.gain", _filled(1e35), "reaches beyond"),
        ("block.leak.mantissa", _filled(5), "its values lie in 2147483648..4294967295"),
        ("block.leak.exponent", _filled(-1), "exponent"),
        ("block.readout.scale", _filled(-1.0), "positive scale"),
        ("block.rise", lambda rise: rise[::-1], "must not fall"),
        ("block.rise", lambda rise: rise[1:], "shape"),
        ("block.proj.weight", lambda weight: weight.astype(np.int16), "dtype"),
        ("patch_weight", _filled(32767), "accumulator"),
        ("patch_shift", _filled(31), "shift"),
        ("position", _filled(1 << 27), "its values lie in -67108864..67108864"),
        ("head_bias", _filled(1 << 60), "its values lie in -4503599627370495..4503599627370495"),
    ],
)
def test_values_that_the_arithmetic_cannot_bear_are_refused(network: Network, path: str, value: Any, word: str) -> None:
    if path == "patch_weight":  # too few pixels here for all weights at their largest to overflow
        network = from_model(small_model(CONFIG.replace(image_size=32, patch_size=16))[0])
    with pytest.raises(LapisError, match=word):
        _changed(network, path, value)


def test_layer_norm_in_integers_is_layer_norm() -> None:
    stream = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (50, 37)).astype(np.int32)
    real = stream.astype(np.float64)
    centred = real - real.mean(axis=-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1.0)
    # The mean is rounded to one unit of the stream.
    assert np.abs(arithmetic.standardise(stream, 1.0) - exact).max() < 2e-6


@pytest.mark.parametrize("level", [-arithmetic.STREAM_LIMIT, arithmetic.STREAM_LIMIT - 1])
def test_layer_norm_bears_the_limits_of_the_stream(level: int) -> None:
    flat = np.full((1, arithmetic.MAX_WIDTH), level, dtype=np.int32)
    assert (arithmetic.standardise(flat, 1.0) == 0).all()
    flat[0, ::2] = -arithmetic.STREAM_LIMIT
    assert np.abs(arithmetic.standardise(flat, 1.0)).max() <= 1.0


def test_the_residual_stream_saturates() -> None:
    top = np.array([arithmetic.STREAM_LIMIT - 1], dtype=np.int32)
    assert arithmetic.add_to_stream(top, np.array([5.0], dtype=np.float32)).tolist() == top.tolist()


def test_a_deployed_network_needs_no_torch() -> None:
    modules = "lapis.ops, lapis.deploy, lapis.pack, lapis.models, lapis.convert.verification, lapis.runtime"
    code = f"import sys; sys.modules['torch'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
