"""Explain any model on any image; packed files need no torch, checkpoints do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lapis import models
from lapis.data.cifar_sample import SAMPLE, named_image
from lapis.deploy.network import check_deployable
from lapis.errors import LapisError
from lapis.models import Opened
from lapis.preprocess import Pixels, read_image
from lapis.report.page.evidence import Progress
from lapis.report.page.explained import Explained
from lapis.report.page.from_network import explain_network


def explain(model: str | Path, image: str | Path, evidence: bool = True, progress: Progress | None = None) -> Explained:
    """Run any model on an image file or `sample:N`: in its deployed form if it has one, else as in training.

    `evidence` asks which patches raised or lowered the top classes; `progress` is told how much of that is done.
    """
    opened = models.open(model)
    pixels, label = open_image(image)
    details: dict[str, Any] = {
        "model": Path(model).name,
        "picture": Path(image).name,
        "label": label,
        "evidence": evidence,
        "progress": progress,
    }
    if opened.kind != "checkpoint" or _deployable(opened):
        return explain_network(opened.network(), pixels, **details)
    return _explain_checkpoint(opened, pixels, details)


def open_image(image: str | Path) -> tuple[Pixels, str]:
    """Pixels (height, width, 3) and, for an image of the packaged sample, its label."""
    return named_image(str(image)) if str(image).startswith(SAMPLE) else (read_image(image), "")


def _deployable(opened: Opened) -> bool:
    try:
        check_deployable(opened.config)
    except LapisError:
        return False
    return True


def _explain_checkpoint(opened: Opened, pixels: Pixels, details: dict[str, Any]) -> Explained:
    """Run a network that cannot be deployed yet in torch, as in training."""
    network = opened.model()
    from lapis.report.page.from_model import explain_model

    prepare = opened.preprocess
    return explain_model(network, prepare.resize(pixels), prepare, opened.class_names, **details)
