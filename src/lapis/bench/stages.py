"""The engine's time per image and stage, and how close the linear layers come to the limit.

The limit is the multiply instruction of the selected kernels, timed from registers on the same core.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from lapis.bench.networks import SHAPES, busy_network, quiet_network, random_images, sparse_network
from lapis.config import LapisConfig
from lapis.deploy.network import Network
from lapis.runtime.engine import Engine, peak_rate

NETWORKS: dict[str, Callable[[LapisConfig], Network]] = {
    "quiet": quiet_network,
    "busy": busy_network,
    "sparse": sparse_network,
}


@dataclass(frozen=True)
class StageRow:
    """One stage on one thread; only linear layers have a rate and a share of the limit, else they are None."""

    shape: str
    network: str
    stage: str
    ms_per_image: float
    gmac_per_s: float | None
    share_of_limit: float | None


def stages(shape: str, network: str, rounds: int) -> list[StageRow]:
    """The median time of every stage over `rounds` runs of one image on one thread."""
    config = SHAPES[shape]
    engine = Engine(NETWORKS[network](config))
    image = random_images(config, 1)
    engine.run(image)
    profiles = [engine.profile(image) for _ in range(rounds)]
    macs, limit = stage_macs(config), peak_rate()
    rows = []
    for stage in profiles[0]:
        nanoseconds = statistics.median(profile[stage] for profile in profiles)
        rate = macs[stage] / nanoseconds if stage in macs else None
        rows.append(
            StageRow(
                shape=shape,
                network=network,
                stage=stage,
                ms_per_image=round(nanoseconds / 1e6, 3),
                gmac_per_s=None if rate is None else round(rate, 1),
                share_of_limit=None if rate is None or not limit else round(rate / limit, 3),
            )
        )
    return rows


def stage_macs(config: LapisConfig) -> dict[str, int]:
    """Multiply-accumulates of one image in each linear stage."""
    one = config.depth * config.tokens * config.width
    return {
        "qkv": 3 * one * config.width,
        "proj": one * config.width,
        "fc1": one * config.hidden,
        "fc2": one * config.hidden,
    }
