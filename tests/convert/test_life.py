"""The life of a neuron is the one that the network leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from lapis.convert.from_model import from_model
from lapis.convert.life import live

from lapis.config import ActivationModes, LapisConfig, Mode
from lapis.errors import LapisError

if TYPE_CHECKING:
    from tests.conftest import SmallModel

CONFIG = LapisConfig(
    image_size=8,
    patch_size=4,
    classes=3,
    width=8,
    depth=2,
    heads=2,
    row_scale="pow2",
    readout="spikes",
    weight_bits=6,
)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_neuron_fires_when_its_code_says(mode: Mode, small_model: SmallModel) -> None:
    model, images = small_model(CONFIG.replace(modes=ActivationModes.all(mode)))
    network = from_model(model)
    codes = network.watch(images[:1]).trace[1, "v"][0]
    for token, channel in ((0, 0), (2, 5), (4, 7)):
        life = live(network, images[0], 1, token, channel)
        assert life.code == codes[token, channel]
        assert life.window - life.spike == max(0, life.code)  # the ON neuron is silent for a negative value
        assert life.voltage[-1] == np.dot(life.arrivals.sum(axis=1), life.window - np.arange(life.window))
        assert (np.diff(life.threshold) <= 0).all()


def test_a_neuron_that_is_not_there_is_refused(small_model: SmallModel) -> None:
    model, images = small_model(CONFIG)
    with pytest.raises(LapisError, match="no neuron at block 2"):
        live(from_model(model), images[0], 2, 0, 0)
