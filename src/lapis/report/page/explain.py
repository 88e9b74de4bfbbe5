"""Explain any model on any image. A network that can be deployed runs in integers, without torch; others as trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from lapis import assets, models
from lapis.data.packaged import SAMPLE, named_image
from lapis.deploy.leak import time_constant
from lapis.deploy.network import Network, check_deployable
from lapis.errors import LapisError
from lapis.preprocess import Pixels, read_image
from lapis.report.page.evidence import Progress, by_occlusion
from lapis.report.page.explained import AttentionSource, Explained, ReadoutScale, Scaled, check_explainable
from lapis.runtime.session import NUMPY, Session


def explain(model: str | Path, image: str | Path, evidence: bool = True, progress: Progress | None = None) -> Explained:
    """Run any model on an image file or `sample:N`: in its deployed form if it has one, else as in training.

    `evidence` asks which patches raised or lowered the top classes; `progress` is told how much of that is done.
    """
    opened = models.load(model)
    pixels, label = open_image(image)
    details: dict[str, Any] = {
        "model": Path(model).name,
        "picture": Path(image).name,
        "label": label,
        "evidence": evidence,
        "progress": progress,
        "min_score": assets.min_score(str(model)),
    }
    if opened.kind == "checkpoint":
        try:
            check_deployable(opened.config)
        except LapisError:
            network, prepare = opened.torch(), opened.preprocess
            from lapis.report.page.from_model import explain_model

            return explain_model(network, prepare.resize(pixels), prepare, opened.class_names, **details)
    return explain_network(opened.network, pixels, **details)


def open_image(image: str | Path) -> tuple[Pixels, str]:
    """Pixels (height, width, 3) and, for a packaged image, its label."""
    return named_image(str(image)) if str(image).startswith(SAMPLE) else (read_image(image), "")


def explain_network(
    network: Network, image: Pixels, evidence: bool = True, progress: Progress | None = None, **details: Any
) -> Explained:
    """Run a deployed network on one image of any size and record all codes.

    `evidence` asks for the patches that raised or lowered the top classes, which takes one run per tile of them.
    """
    check_explainable(network.config)
    pixels = network.preprocess.resize(image)
    # The page resizes and crops the image itself, once; the session takes these pixels as they are.
    session = Session(dataclasses.replace(network, preprocess=dataclasses.replace(network.preprocess, crop=1.0)))
    logits, trace = session.watch(pixels[None])
    how = "the integer model in numpy" if session.executor == NUMPY else f"the native engine ({session.executor})"
    return Explained(
        config=network.config,
        image=pixels,
        class_names=network.class_names,
        logits=np.asarray(logits[0], dtype=np.float64),
        trace=trace,
        attention=attention_of(network),
        evidence=by_occlusion(session.run, pixels, logits[0], network.config.patch_size, progress)
        if evidence
        else None,
        **{"executor": how} | details,
    )


def attention_of(network: Network) -> AttentionSource:
    """The constants of a deployed network's attention, as the page takes them."""
    blocks = network.blocks
    readout = ReadoutScale(
        np.array([float(block.readout.scale) for block in blocks]),
        np.array([float(block.readout.shift) for block in blocks]),
    )
    tables = [block.affinity for block in blocks if block.affinity is not None]
    leaks = [block.leak for block in blocks if block.leak is not None]
    numbers = Scaled(*(np.stack([getattr(each, name) for each in tables or leaks]) for name in Scaled._fields))
    if tables:
        return AttentionSource(stored=numbers, readout=readout)
    delays = [leak.delay.astype(np.int64) for leak in leaks if leak.delay is not None]
    return AttentionSource(
        tau=time_constant(*numbers), delays=np.stack(delays) if delays else None, leak=numbers, readout=readout
    )
