"""The way back: a deployed network becomes a trainable one that converts to the same integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lapis.config import LapisConfig
from lapis.convert import from_model, to_model
from lapis.deploy import integer
from lapis.deploy.network import Network, named_arrays
from lapis.nn import is_calibrated
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from tests.networks import configs, images_for, small_config, small_network

# Scales pass through float32 parameters and logarithms: a few units in the last of 24 bits.
FLOAT_RTOL = 2e-6
# A time constant is kept as a float32 logarithm, so a leak's mantissa of 32 bits is found again to about 24.
MANTISSA_RTOL = 2.0**-22


def _assert_same(ours: Network, again: Network) -> None:
    for (name, left, _), (_, right, _) in zip(named_arrays(ours), named_arrays(again), strict=True):
        if name.endswith("leak.mantissa"):
            assert np.allclose(left.astype(float), right.astype(float), rtol=MANTISSA_RTOL), name
        elif name == "head_bias":
            # The bias of a head is a float32: 24 of its bits survive.
            assert np.allclose(left.astype(float), right.astype(float), rtol=2.0**-23), name
        elif np.issubdtype(left.dtype, np.integer):
            assert (left == right).all(), name
        else:
            # Biases and shifts are differences: what is small beside the largest of them may lose its own digits.
            assert np.abs(left - right).max(initial=0.0) <= FLOAT_RTOL * max(1.0, np.abs(left).max(initial=0.0)), name


# A norm over fewer channels is constant, and what follows it has no scale to find.
@given(config=configs().filter(lambda config: config.width >= 4), seed=st.integers(0, 1 << 16))
@settings(max_examples=60)
def test_converting_again_gives_the_same_integers(config: LapisConfig, seed: int) -> None:
    network, _ = small_network(config, seed, preprocess=Preprocess(config.image_size, mean=(0.1, 0.5, 0.9)))
    model = to_model(network)
    assert is_calibrated(model)
    _assert_same(network, from_model(model, network.preprocess))


@pytest.mark.parametrize("style", ["vit", "beit"])
def test_the_trainable_network_answers_as_the_deployed_one_and_learns(style: str) -> None:
    network, _ = small_network(small_config(style=style, width=24, classes=5), 7)
    model, images = to_model(network), images_for(network, 16)
    logits = model(normalise(torch.from_numpy(images), network.preprocess))
    codes = integer.watch(network, images).trace[0, "attention_in"]
    seen = model.watch(normalise(torch.from_numpy(images), network.preprocess)).trace[0, "attention_in"]
    assert (codes == seen).mean() > 0.99
    logits.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)
