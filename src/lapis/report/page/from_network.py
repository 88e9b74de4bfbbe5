"""The data of the page for a deployed network: its codes and its integer affinities. Torch is not needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lapis.deploy.leak import time_constant
from lapis.deploy.network import Network
from lapis.preprocess import Pixels
from lapis.report.page.evidence import Evidence, Progress, by_head, by_occlusion
from lapis.report.page.explained import (
    Attention,
    Explained,
    LeakFactors,
    ReadoutScale,
    StoredAffinities,
    check_explainable,
)
from lapis.runtime.session import NUMPY, Session
from lapis.trace import Watched


def explain_network(
    network: Network, image: Pixels, evidence: bool = True, progress: Progress | None = None, **details: Any
) -> Explained:
    """Run a deployed network on one image of any size and record all codes.

    `evidence` asks for the patches that raised or lowered the top classes; by occlusion it takes one run per patch.
    """
    check_explainable(network.config)
    pixels = network.preprocess.resize(image)
    # The page resizes and crops the image itself, once; the session takes these pixels as they are.
    session = Session(dataclasses.replace(network, preprocess=dataclasses.replace(network.preprocess, crop=1.0)))
    watched = session.watch(pixels[None])
    how = "the integer model in numpy" if session.executor == NUMPY else f"the native engine ({session.executor})"
    return Explained(
        config=network.config,
        image=pixels,
        class_names=network.class_names,
        logits=np.asarray(watched.logits[0], dtype=np.float64),
        trace=watched.trace,
        evidence=_evidence(network, session, pixels, watched, progress) if evidence else None,
        **attention_of(network)._asdict(),
        **{"executor": how} | details,
    )


def attention_of(network: Network) -> Attention:
    """The constants of a deployed network's attention, as the page takes them."""
    blocks = network.blocks
    readout = ReadoutScale(
        np.array([float(block.readout.scale) for block in blocks]),
        np.array([float(block.readout.shift) for block in blocks]),
    )
    tables = [block.by_distance for block in blocks if block.by_distance is not None]
    if tables:
        mantissa, exponent = (np.stack(each) for each in zip(*((t.mantissa, t.exponent) for t in tables), strict=True))
        return Attention(stored=StoredAffinities(mantissa, exponent), readout=readout)
    leaks = [block.leak for block in blocks if block.leak is not None]
    mantissa = np.stack([leak.mantissa for leak in leaks])
    exponent = np.stack([leak.exponent for leak in leaks])
    delays = [leak.delay.astype(np.int64) for leak in leaks if leak.delay is not None]
    return Attention(
        tau=time_constant(mantissa, exponent),
        delays=np.stack(delays) if delays else None,
        leak=LeakFactors(mantissa, exponent),
        readout=readout,
    )


def _evidence(
    network: Network, session: Session, pixels: Pixels, watched: Watched, progress: Progress | None
) -> Evidence:
    """By the network's own head where its answer is a sum over patches, else by occlusion."""
    if network.config.mean_pooling:
        return by_head(network, pixels, watched.logits[0], watched.trace)
    return by_occlusion(session.run, pixels, watched.logits[0], network.config.patch_size, progress)
