"""Random networks of awkward sizes; every engine test runs on every instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lapis.config import LapisConfig
from lapis.convert.network import Network
from lapis.convert.synthetic import random_network
from tests.ops.conftest import ISAS, run_on

DEPLOYED: dict[str, Any] = {"row_scale": "pow2", "readout": "spikes", "weight_bits": 6}


def network_of(seed: int = 0, **changes: Any) -> Network:
    """A small random network; most fields may be changed."""
    fields: dict[str, Any] = {
        "image_size": 20, "patch_size": 4, "classes": 7, "width": 48, "depth": 2, "heads": 3, **DEPLOYED, **changes,
    }  # fmt: skip
    return random_network(LapisConfig().replace(**fields), seed)


def images_for(network: Network, batch: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    size = network.config.image_size
    return np.random.default_rng(seed).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with run_on(request.param):
        yield request.param
