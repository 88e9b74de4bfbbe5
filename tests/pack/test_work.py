"""The work of opening a file is bounded by its size and by stated limits, checked before it starts."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic import random_network
from lapis import native
from lapis.config import PRESETS, CodingByPoint, LapisConfig
from lapis.deploy.network import Leak, Network, check_packed
from lapis.deploy.schema import allowed_work
from lapis.errors import LapisError
from lapis.pack import load, pack
from lapis.runtime import Session
from tests.networks import small_config

# Opening took minutes before it was bounded; now a second, or ten on a machine that is busy with other things.
PATIENCE = 15


def slow(config: LapisConfig, exponents: int) -> Network:
    """A network whose leak passes through about this many exponents, over the longest delay that a file holds."""
    network = random_network(config)
    blocks = []
    for block in network.blocks:
        assert block.leak is not None
        assert block.leak.delay is not None
        # The exponent rises by one whenever the mantissa has lost half.
        mantissa = np.full_like(block.leak.mantissa, int(2.0 ** (32 - exponents / (1 << 14))))
        delay = np.full_like(block.leak.delay, (1 << 14) - 1)
        blocks.append(dataclasses.replace(block, leak=Leak(mantissa, np.zeros_like(block.leak.exponent), delay)))
    return dataclasses.replace(network, blocks=tuple(blocks))


def test_a_small_file_cannot_ask_for_large_tables(tmp_path: Path) -> None:
    config = small_config(style="beit", image_size=1, patch_size=1, classes=1, width=1, heads=1, depth=32, mlp_ratio=1)
    path = tmp_path / "slow.safetensors"
    path.write_bytes(pack(slow(config, 4000)))
    assert path.stat().st_size < 16_000
    started = time.monotonic()
    for plain in (False, True):
        with pytest.raises(LapisError, match="tables"):
            Session(path, native=not plain).run(np.zeros((1, 1, 1, 3), np.uint8))
    assert time.monotonic() - started < PATIENCE


EXTREMES: dict[str, dict[str, Any]] = {
    "the widest head": {"width": 2048, "heads": 1},
    "the widest signed head": {"width": 1024, "heads": 1, "window": 15, "coding": CodingByPoint.all("signed")},
    "many heads and blocks": {"width": 64, "heads": 64, "depth": 256, "style": "beit", "mlp_ratio": 1},
    "many pairs": {"style": "beit", "image_size": 64, "patch_size": 1, "window": 1, "depth": 4},
}


@pytest.mark.parametrize("extreme", EXTREMES)
def test_configurations_that_ask_for_much_are_refused_before_any_tensor_is_read(extreme: str) -> None:
    config = small_config(window=63).replace(**EXTREMES[extreme])
    with pytest.raises(LapisError, match=r"at most|beyond"):
        check_packed(config)


def test_the_presets_are_far_from_every_limit() -> None:
    for config in PRESETS.values():
        deployed = config.deployed().replace(coding=CodingByPoint.all("signed"))
        pairs = deployed.depth * deployed.heads * deployed.tokens**2
        assert 8 * pairs < allowed_work(deployed)


@pytest.mark.skipif(not native.available(), reason="no native kernels")
def test_memory_of_a_session_is_bounded_by_the_file(tmp_path: Path) -> None:
    """The largest tables and the most tokens that small files may ask for."""
    for changes in (
        {"image_size": 128, "patch_size": 1, "window": 3, "width": 1, "heads": 1, "depth": 1},
        {"image_size": 8, "width": 256, "heads": 1, "window": 63},
        {"style": "beit", "image_size": 8, "width": 2, "heads": 2, "depth": 200, "mlp_ratio": 1},
    ):
        config = small_config(**changes)
        path = tmp_path / "f.safetensors"
        path.write_bytes(pack(random_network(config)))
        assert load(path).config == config
        used = Session(path).memory()
        assert sum(used.values()) < 8 * allowed_work(config), changes
