"""Fitting in closed form: a spiking network comes nearer to its dense source without training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.nn import LapisViT, calibrate, is_calibrated
from lapis.nn import fit as fitting
from lapis.nn.fit import fit_layers
from lapis.nn.quantizer import Linear
from tests.networks import shaken_network

DENSE = LapisConfig(image_size=32, patch_size=8, classes=5, width=32, depth=3, heads=2, relation="dot", quantize=False)
SIGNED = CodingByPoint.all("signed")
# Many values are silent, so there is something to make up for.
LATE = MinCodeByPoint(attention_in=5, v=5, readout=5, mlp_in=5)


def spiking(coding: CodingByPoint = SIGNED, style: str = "vit", bits: int = 32) -> tuple[LapisViT, LapisViT, Tensor]:
    """A student with the weights of a dense network, that network, and images."""
    dense, _ = shaken_network(DENSE.replace(style=style))
    generator = torch.Generator().manual_seed(4)
    # Mixtures of a few patterns: only where inputs go together can one make up for what another lost.
    patterns = torch.randn(6, 3, 8, 8, generator=generator).repeat(1, 1, 4, 4)
    shares = torch.rand(160, 6, 1, 32, 32, generator=generator)
    images = (shares * patterns).sum(dim=1)
    config = dense.config.replace(quantize=True, relation="laplacian", coding=coding, min_code=LATE).deployed(bits)
    student = LapisViT(config)
    student.load_state_dict(dense.state_dict(), strict=False)
    return student.eval(), dense.eval(), images


def away(student: LapisViT, dense: LapisViT, images: Tensor) -> float:
    """The relative error of the last tokens."""
    last = (DENSE.depth - 1,)
    with torch.no_grad():
        ours, theirs = (model.tap(images, last).features[0] for model in (student, dense))
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("style", ["vit", "beit"])
@pytest.mark.parametrize("bits", [32, 6])
@pytest.mark.parametrize("coding", ["signed", "unsigned"])
def test_a_fitted_network_is_nearer_to_the_dense_one_on_other_images(coding: str, bits: int, style: str) -> None:
    student, dense, images = spiking(CodingByPoint.all(coding), style, bits)  # type: ignore[arg-type]
    seen, other = images[:128], images[128:]
    calibrate(student, seen)
    before = away(student, dense, other)
    student.load_state_dict(dense.state_dict(), strict=False)
    fit_layers(student, seen)
    assert is_calibrated(student)
    assert away(student, dense, other) < 0.85 * before


def test_a_layer_gets_the_ridge_regression_of_its_errors() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(200, 7, generator=generator) + 3
    errors = torch.randn(200, 4, generator=generator) - 2
    layer = Linear(7, 4, 32)
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    with torch.no_grad():
        fitting._fit(layer, iter([(x[:90], errors[:90]), (x[90:], errors[90:])]))
    centred = (x - x.mean(dim=0)).double().numpy()
    target = (errors - errors.mean(dim=0)).double().numpy()
    ridge = fitting.ROWS * float((centred**2).sum()) / 200
    # The textbook's form of ridge regression: ordinary least squares with rows of sqrt(ridge) below.
    rows = np.concatenate([centred, np.sqrt(ridge) * np.eye(7)])
    change = np.linalg.lstsq(rows, np.concatenate([target, np.zeros((7, 4))]), rcond=None)[0]
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight + change.T, atol=1e-5)
    moved = errors.double().numpy().mean(axis=0) - x.double().numpy().mean(axis=0) @ change
    np.testing.assert_allclose(layer.bias.detach().numpy(), bias + moved, atol=1e-5)


@pytest.mark.parametrize("bits", [32, 6])
def test_a_fitted_layer_errs_by_nothing_on_average(bits: int) -> None:
    generator = torch.Generator().manual_seed(6)
    x, wanted = torch.randn(50, 6, generator=generator) + 1, torch.randn(50, 3, generator=generator) + 4
    layer = Linear(6, 3, bits)
    if layer.quantizer is not None:
        layer.quantizer.calibrate(layer.weight)
    with torch.no_grad():
        fitting._fit(layer, iter([(x, wanted - layer(x))]))
        torch.testing.assert_close(layer(x).mean(dim=0), wanted.mean(dim=0), atol=1e-5, rtol=0)


def test_fitting_leaves_no_hooks_and_does_not_touch_what_is_not_in_a_block() -> None:
    student, _, images = spiking()
    student.train()
    before = {name: tensor.clone() for name, tensor in student.state_dict().items() if not name.startswith("blocks")}
    fit_layers(student, images)
    assert student.training
    assert all(torch.equal(student.state_dict()[name], tensor) for name, tensor in before.items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in student.modules())
