"""Calibration: find steps, offsets and time constants from a few images, before a network is used.

A forward pass changes nothing in a network. Here, and only here, observers watch one pass: what a quantizer or relation
lacks is found when its first data come, so that each sees what the calibrated ones before it produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lapis.errors import LapisError
from lapis.nn.attention import Attention, softmax_attention
from lapis.nn.quantizer import ActivationQuantizer, Calibrated, Linear


@torch.no_grad()
def calibrate(model: nn.Module, images: Tensor | Iterable[Tensor], missing_only: bool = False) -> None:
    """Set every step, offset and tau of a network, or of layers in another one, from images or batches of images.

    With `missing_only`, what has been found or loaded before stays as it is.
    """
    batches = [images] if isinstance(images, Tensor) else list(images)
    if not batches:
        raise LapisError("calibration was given no images; pass at least one batch")
    stacked = torch.cat(batches)
    if not bool(torch.isfinite(stacked).all()):
        raise LapisError("calibration images hold NaN or infinity")
    for module in model.modules():
        if isinstance(module, Calibrated) and not missing_only:
            module.mark_ready(False)
    calibrate_weights(model)
    training = model.training
    model.eval()
    try:
        with _finding_parameters(model), torch.autocast(stacked.device.type, enabled=False):
            model(stacked.float())
    finally:
        model.train(training)


def calibrate_weights(model: nn.Module) -> None:
    """Find the steps of quantized weights that have none; it takes no images."""
    for module in model.modules():
        if isinstance(module, Linear) and module.quantizer is not None and not module.quantizer.is_ready:
            module.quantizer.calibrate(module.weight)


def is_calibrated(model: nn.Module) -> bool:
    """Whether every quantizer and relation has its steps and tau."""
    return all(module.is_ready for module in model.modules() if isinstance(module, Calibrated))


@contextmanager
def _finding_parameters(model: nn.Module) -> Iterator[None]:
    """Every quantizer and attention of the network has an observer that gives it what it lacks."""
    observed: list[Any] = [part for part in model.modules() if isinstance(part, (ActivationQuantizer, Attention))]
    before = [part.observer for part in observed]
    for part in observed:
        part.observer = _find_relation if isinstance(part, Attention) else _find_step
    try:
        yield
    finally:
        for part, observer in zip(observed, before, strict=True):
            part.observer = observer


def _find_step(quantizer: ActivationQuantizer, x: Tensor) -> None:
    if not quantizer.is_ready:
        quantizer.calibrate(x)


def _find_relation(layer: Attention, qkv: Tensor, qk: Tensor, v: Tensor) -> None:
    relation = layer.relation
    if not relation.is_ready:
        bias = None if relation.position is None else relation.position.bias()
        q, k, values = qkv
        relation.init_from_data(qk[0], qk[1], v, softmax_attention(q, k, values, bias))
