"""The life of a neuron is the one that the network leads."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from lapis.config import Coding, CodingByPoint
from lapis.convert.fold import from_model
from lapis.deploy import integer
from lapis.errors import LapisError
from research.neuron_chart import follow_neuron
from tests.networks import small_config, small_model

CONFIG = small_config(width=8)


@pytest.mark.parametrize("mode", get_args(Coding))
def test_a_neuron_fires_when_its_code_says(mode: Coding) -> None:
    model, images = small_model(CONFIG.replace(coding=CodingByPoint.all(mode)))
    network = from_model(model)
    codes = integer.watch(network, images[:1]).trace[1, "v"][0]
    for token, channel in ((0, 0), (2, 5), (4, 7)):
        history = follow_neuron(network, images[0], 1, token, channel)
        assert history.code == codes[token, channel]
        assert history.window - history.spike == max(0, history.code)  # the ON neuron is silent for a negative value
        assert history.voltage[-1] == np.dot(history.arrivals.sum(axis=1), history.window - np.arange(history.window))
        assert (np.diff(history.threshold) <= 0).all()


def test_a_neuron_that_is_not_there_is_refused() -> None:
    model, images = small_model(CONFIG)
    with pytest.raises(LapisError, match="no neuron at block 2"):
        follow_neuron(from_model(model), images[0], 2, 0, 0)
