"""Offsets become biases: the same codes, and an unsigned start that has lost nothing but grain."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lapis.config import Coding, CodingByPoint, LapisConfig
from lapis.nn import LapisViT, calibrate, fold_offsets, is_calibrated, lift
from lapis.nn.lift import LIFTED, LOWERED, ignore_mean_values, lower
from lapis.nn.quantizer import required
from lapis.trace import Point
from tests.networks import shaken_network

CONFIG = LapisConfig(image_size=16, patch_size=8, classes=5, width=32, depth=3, heads=2)
MODES: dict[str, Coding] = dict.fromkeys(LIFTED, "offset")
# The share of codes that must agree: a few values lie so near a threshold that a sum in another order crosses it.
TIES = 0.995
OFFSET = dataclasses.replace(CodingByPoint(), **MODES)


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
@pytest.mark.parametrize("bits", [32, 6])
@pytest.mark.parametrize("readout", ["real", "spikes"])
def test_folding_keeps_every_code(row_scale: str, bits: int, readout: str) -> None:
    coding = OFFSET if readout == "real" else dataclasses.replace(OFFSET, readout="offset")
    model, images = shaken_network(
        CONFIG.replace(row_scale=row_scale, weight_bits=bits, readout=readout, coding=coding)
    )
    calibrate(model, [images])
    folded = fold_offsets(model)
    assert {getattr(folded.config.coding, point) for point in LIFTED} == {"unsigned"}
    assert is_calibrated(folded)
    old, new = model.watch(images), folded.watch(images)
    differ = total = 0
    for key in old.trace:
        differ += int((old.trace[key] != new.trace[key]).sum())
        total += old.trace[key].size
        assert old.trace[key].any(), f"{key} is silent, so this proves nothing"
    assert differ <= total // 1000, "more than ties of rounding"
    assert torch.allclose(old.logits, new.logits, atol=0.05 * float(old.logits.abs().max()))


def test_a_lifted_network_hears_what_a_plain_unsigned_one_loses() -> None:
    config = CONFIG.replace(relation="dot", coding=CodingByPoint(qk="signed"))
    dense, images = shaken_network(config.replace(quantize=False))
    wanted = dense(images).detach()

    def error(model: LapisViT) -> float:
        return float((model(images).detach() - wanted).square().mean() / wanted.square().mean())

    plain = LapisViT(config).eval()
    plain.load_state_dict(dense.state_dict(), strict=False)
    lifted = lift(plain, [images])
    calibrate(plain, [images])
    assert is_calibrated(lifted)
    assert not lifted.training
    assert lifted.config == config
    assert error(lifted) < 0.2 * error(plain)


def test_a_dot_product_would_see_the_lift_of_queries_and_keys() -> None:
    coding = dataclasses.replace(CodingByPoint.all("signed"), qk="unsigned")
    for relation, lifts in (("laplacian", True), ("dot", False)):
        model, images = shaken_network(CONFIG.replace(relation=relation, coding=coding))
        old, new = model.blocks[0].attn.qkv.bias, lift(model, [images]).blocks[0].attn.qkv.bias
        assert torch.equal(old, new) is not lifts


def test_points_in_another_mode_stay() -> None:
    coding = CodingByPoint(attention_in="signed", v="offset", mlp_hidden="offset")
    model, images = shaken_network(CONFIG.replace(coding=coding))
    lifted = lift(model, [images])
    assert lifted.config.coding == dataclasses.replace(coding, v="unsigned")
    assert is_calibrated(lifted)


def test_a_spiking_readout_is_calibrated_on_lifted_values() -> None:
    model, images = shaken_network(CONFIG.replace(row_scale="pow2", readout="spikes"))
    lifted = lift(model, [images])
    assert is_calibrated(lifted)
    trace = lifted.watch(images).trace
    assert all((trace[block, "readout"] > 0).mean() > 0.5 for block in range(3)), "lifted values are above zero"


def test_lifted_values_lose_little_by_the_clip_at_zero() -> None:
    coding = dataclasses.replace(CodingByPoint.all("signed"), v="unsigned")
    model, images = shaken_network(CONFIG.replace(row_scale="pow2", coding=coding))
    calibrate(model, [images])
    for old, new in zip(values(model, images), values(lift(model, [images]), images), strict=True):
        assert clipped(old) > 0.3
        assert clipped(new) < 0.1


def values(model: LapisViT, images: torch.Tensor) -> list[torch.Tensor]:
    """What comes to the quantizer of v in each block."""
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        assert block.attn.v is not None
        block.attn.v.observer = lambda _, x: seen.append(x)
    model.eval().watch(images)
    return seen


def clipped(x: torch.Tensor) -> float:
    """The share of the spread of x that is below zero and lost."""
    return float(x.clamp_max(0).square().sum() / (x - x.mean()).square().sum())


def mean_value(model: LapisViT, images: torch.Tensor, block: int) -> torch.Tensor:
    codes = torch.from_numpy(model.watch(images).trace[block, "v"]).float()
    return (codes.mean(dim=(0, 1)) * required(model.blocks[block].attn.v).step).detach()


def test_a_projection_that_ignores_mean_values_ignores_the_mass_of_a_row() -> None:
    config = CONFIG.replace(row_scale="pow2", readout="spikes", coding=CodingByPoint.all("unsigned"))
    model, images = shaken_network(config)
    calibrate(model, [images])
    for index, block in enumerate(model.blocks):
        mean = mean_value(model, images, index)
        assert not torch.allclose(block.attn.proj(1.4 * mean), block.attn.proj(mean), atol=1e-3), "its mass counts"
    ignore_mean_values(model, images)
    for index, block in enumerate(model.blocks):
        mean = mean_value(model, images, index)
        torch.testing.assert_close(block.attn.proj(1.4 * mean), block.attn.proj(mean), atol=1e-4, rtol=1e-4)


def test_a_projection_that_ignores_mean_values_gives_the_mean_value_the_same_answer() -> None:
    model, images = shaken_network(CONFIG.replace(depth=1, coding=CodingByPoint.all("unsigned")))
    calibrate(model, [images])
    projection, mean = model.blocks[0].attn.proj, mean_value(model, images, 0)
    before = projection(mean).detach()
    ignore_mean_values(model, images)
    torch.testing.assert_close(projection(mean).detach(), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bits", [32, 6])
@pytest.mark.parametrize("point", LOWERED)
def test_lowered_values_that_still_fire_mean_what_they_meant(point: Point, bits: int) -> None:
    model, images = unsigned_network(point, bits)
    lower(model, {point: (-30,)})  # up, so that every value fires
    raised = model.watch(images)
    assert raised.trace[0, point].min() > 2
    lower(model, {point: (3,)})
    lowered = model.watch(images)
    assert (lowered.trace[0, point] == raised.trace[0, point] - 2).mean() > TIES
    torch.testing.assert_close(lowered.logits, raised.logits, atol=0.02, rtol=0)


@pytest.mark.parametrize("point", LOWERED)
def test_what_is_lowered_below_zero_falls_silent(point: Point) -> None:
    model, images = unsigned_network(point, bits=32)
    before = model.watch(images)
    lower(model, {point: (4,)})
    after = model.watch(images)
    codes = before.trace[0, point].astype(int)
    assert 0 < (codes > 3).mean() < (codes > 0).mean() - 0.1
    assert (after.trace[0, point] == (codes - 3).clip(0)).mean() > TIES
    assert not torch.allclose(after.logits, before.logits, atol=0.02), "what fell silent was heard before"


def unsigned_network(point: Point, bits: int) -> tuple[LapisViT, torch.Tensor]:
    """A network of one block whose values at a point never reach the highest code."""
    model, images = shaken_network(CONFIG.replace(depth=1, weight_bits=bits, coding=CodingByPoint.all("unsigned")))
    calibrate(model, [images])
    next(quantizer for _, name, quantizer in model.quantizers() if name == point).high = 100
    return model, images
