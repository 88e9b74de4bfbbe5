"""The data of the page for a deployed network: its codes and its integer leak. Torch is not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lapis.deploy import integer
from lapis.deploy.leak import time_constant
from lapis.deploy.network import Network
from lapis.preprocess import Pixels
from lapis.report.page.explained import Explained, LeakFactors, ReadoutScale
from lapis.trace import Watched

# Images (B, S, S, 3) to real logits and a trace, such as `Session.watch`; by default the integer model.
Watch = Callable[[Pixels], Any]


def explain_network(network: Network, image: Pixels, watch: Watch | None = None, **details: Any) -> Explained:
    """Run a deployed network on one image of any size and record all codes."""
    pixels = network.preprocess.resize(image)
    logits, trace = watch(pixels[None]) if watch is not None else _watch(network, pixels[None])
    blocks = network.blocks
    mantissa = np.stack([block.leak.mantissa for block in blocks])
    exponent = np.stack([block.leak.exponent for block in blocks])
    delays = [block.leak.delay.astype(np.int64) for block in blocks if block.leak.delay is not None]
    return Explained(
        config=network.config,
        image=pixels,
        class_names=network.class_names,
        logits=np.asarray(logits[0], dtype=np.float64),
        trace=trace,
        tau=time_constant(mantissa, exponent),
        delays=np.stack(delays) if delays else None,
        leak=LeakFactors(mantissa, exponent),
        readout=ReadoutScale(
            np.array([float(block.readout.scale) for block in blocks]),
            np.array([float(block.readout.shift) for block in blocks]),
        ),
        **{"executor": "the integer model"} | details,
    )


def _watch(network: Network, pixels: Pixels) -> Watched:
    logits, trace = integer.watch(network, pixels)
    return Watched(network.real_logits(logits), trace)
