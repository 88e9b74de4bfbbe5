"""Axes are free to choose: the network stays the same, and loses less when its small values are silent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lapis.config import CodingByPoint, LapisConfig
from lapis.errors import LapisError
from lapis.nn import Mixer, calibrate, is_calibrated, register_relation, symmetry
from tests.networks import shaken_network

DENSE = LapisConfig(image_size=16, patch_size=8, classes=5, width=32, depth=3, heads=2, relation="dot", quantize=False)
SIGNED = CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "STEPS", 60)


def random_rotations(groups: int, width: int, keep_mean: bool) -> Tensor:
    """Random orthogonal matrices, found as those of a network are."""
    rows = torch.randn(groups, 50, width, generator=torch.Generator().manual_seed(1))
    return symmetry._good_rotations(rows, keep_mean)


@pytest.mark.parametrize("style", ["vit", "beit"])
def test_a_rotated_network_is_the_same_network(style: str) -> None:
    model, images = shaken_network(DENSE.replace(style=style))
    with torch.no_grad():
        before = model(images)
        weights = model.blocks[0].attn.qkv.weight.clone()
        symmetry.rotate_tokens(model, random_rotations(1, 32, keep_mean=True)[0])
        for block in model.blocks:
            symmetry.rotate_values(block.attn, random_rotations(2, 16, keep_mean=False))
        after = model(images)
    assert not torch.allclose(weights, model.blocks[0].attn.qkv.weight, atol=1e-2)
    torch.testing.assert_close(after, before, atol=2e-5, rtol=1e-4)


def test_a_rotation_is_orthogonal_and_keeps_the_mean_of_a_token() -> None:
    turned = random_rotations(1, 32, keep_mean=True)[0]
    torch.testing.assert_close(turned @ turned.T, torch.eye(32), atol=1e-5, rtol=0)
    torch.testing.assert_close(turned.sum(dim=1), torch.ones(32), atol=1e-5, rtol=0)
    assert not torch.allclose(turned, torch.eye(32), atol=0.1)


def test_axes_along_which_few_values_are_large_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "STEPS", 400)
    generator = torch.Generator().manual_seed(2)
    sparse = torch.randn(4000, 16, generator=generator) * (torch.rand(4000, 16, generator=generator) < 0.3)
    hidden = sparse @ torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    found = hidden @ symmetry._good_rotations(hidden[None], keep_mean=False)[0]
    assert _lost(hidden) > 0.03
    assert _lost(found) < 0.005


def _lost(values: Tensor) -> float:
    """The share of the power that goes if the smaller half of all values is silent."""
    small = values.abs() < values.abs().median()
    return float(values[small].square().sum() / values.square().sum())


@pytest.mark.parametrize("bits", [32, 6])
def test_a_quantized_network_is_calibrated_in_its_new_axes(bits: int) -> None:
    config = DENSE.replace(relation="laplacian", quantize=True, coding=SIGNED, readout="spikes", weight_bits=bits)
    model, images = shaken_network(config)
    calibrate(model, [images])
    with torch.no_grad():
        before = model(images)
        relation = {name: value.clone() for name, value in model.blocks[0].attn.relation.state_dict().items()}
        symmetry.rotate_basis(model, images)
        after = model(images)
    assert is_calibrated(model)
    for name, value in model.blocks[0].attn.relation.state_dict().items():
        assert torch.equal(value, relation[name])
    assert float((after - before).norm() / before.norm()) < 0.25  # the grain of codes and weights


def test_positive_axes_leave_little_power_to_negative_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "STEPS", 400)
    generator = torch.Generator().manual_seed(3)
    positive = torch.rand(4000, 16, generator=generator).square()
    hidden = positive @ torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    found = hidden @ symmetry._good_rotations(hidden[None], keep_mean=False, positive=True)[0]
    assert _negative(hidden) > 0.1
    assert _negative(found) < 0.01


def _negative(values: Tensor) -> float:
    """The share of the power that negative values have."""
    return float(values.clamp_max(0).square().sum() / values.square().sum())


class Gated(Mixer):
    """y = k: a rule that sums no values."""

    on_codes = True

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return k


def test_a_relation_that_is_no_sum_of_values_is_refused_before_anything_changes() -> None:
    register_relation("gated", Gated)
    model, images = shaken_network(DENSE.replace(relation="gated", quantize=True, coding=SIGNED))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(LapisError, match="does not sum values"):
        symmetry.rotate_basis(model, images)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
