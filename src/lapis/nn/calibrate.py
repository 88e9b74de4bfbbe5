"""Calibration: find steps, offsets and time constants from a few images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated


@torch.no_grad()
def calibrate(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set every step, offset and tau of a network, or of layers in another one, from a few batches of its input.

    The batches go through the network as one, so each quantizer sees what the calibrated ones before it produce.
    Without this call the first training batch does the same.
    """
    images = list(batches)
    if not images:
        raise LapisError("calibration was given no images; pass at least one batch")
    stacked = torch.cat(images)
    if not bool(torch.isfinite(stacked).all()):
        raise LapisError("calibration images hold NaN or infinity")
    for module in model.modules():
        if isinstance(module, Calibrated):
            module.mark_ready(False)
    training = model.training
    model.eval()
    try:
        with torch.autocast(stacked.device.type, enabled=False):
            model(stacked.float())
    finally:
        model.train(training)


def is_calibrated(model: nn.Module) -> bool:
    """Whether every quantizer and relation has its steps and tau."""
    parts = [module for module in model.modules() if isinstance(module, Calibrated)]
    return all(part.is_ready for part in parts)
