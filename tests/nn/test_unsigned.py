"""Offsets become biases: the same codes, and an unsigned start that has lost nothing but grain."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lapis.config import Coding, CodingByPoint, LapisConfig
from lapis.nn import LapisViT, calibrate, fold_offsets, is_calibrated, shift_to_unsigned
from lapis.nn.quantizer import required
from lapis.nn.unsigned import SHIFTED, remove_value_mean
from tests.networks import shaken_network

CONFIG = LapisConfig(image_size=16, patch_size=8, classes=5, width=32, depth=3, heads=2)
MODES: dict[str, Coding] = dict.fromkeys(SHIFTED, "offset")
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
    assert {getattr(folded.config.coding, point) for point in SHIFTED} == {"unsigned"}
    assert is_calibrated(folded)
    old, new = model.watch(images), folded.watch(images)
    differ = total = 0
    for key in old.trace:
        differ += int((old.trace[key] != new.trace[key]).sum())
        total += old.trace[key].size
        assert old.trace[key].any(), f"{key} is silent, so this proves nothing"
    assert differ <= total // 1000, "more than ties of rounding"
    assert torch.allclose(old.logits, new.logits, atol=0.05 * float(old.logits.abs().max()))


def test_a_shifted_network_hears_what_a_plain_unsigned_one_loses() -> None:
    config = CONFIG.replace(relation="dot", coding=CodingByPoint(qk="signed"))
    dense, images = shaken_network(config.replace(quantize=False))
    wanted = dense(images).detach()

    def error(model: LapisViT) -> float:
        return float((model(images).detach() - wanted).square().mean() / wanted.square().mean())

    plain = LapisViT(config).eval()
    plain.load_state_dict(dense.state_dict(), strict=False)
    shifted = shift_to_unsigned(plain, [images])
    calibrate(plain, [images])
    assert is_calibrated(shifted)
    assert not shifted.training
    assert shifted.config == config
    assert error(shifted) < 0.2 * error(plain)


def test_a_dot_product_would_see_the_shift_of_queries_and_keys() -> None:
    modes = dataclasses.replace(CodingByPoint.all("signed"), qk="unsigned")
    for relation, shifts in (("laplacian", True), ("dot", False)):
        model, images = shaken_network(CONFIG.replace(relation=relation, coding=modes))
        old, new = model.blocks[0].attn.qkv.bias, shift_to_unsigned(model, [images]).blocks[0].attn.qkv.bias
        assert torch.equal(old, new) is not shifts


def test_points_in_another_mode_stay() -> None:
    modes = CodingByPoint(attention_in="signed", v="offset", mlp_hidden="offset")
    model, images = shaken_network(CONFIG.replace(coding=modes))
    shifted = shift_to_unsigned(model, [images])
    assert shifted.config.coding == dataclasses.replace(modes, v="unsigned")
    assert is_calibrated(shifted)


def test_a_spiking_readout_is_calibrated_on_shifted_values() -> None:
    model, images = shaken_network(CONFIG.replace(row_scale="pow2", readout="spikes"))
    shifted = shift_to_unsigned(model, [images])
    assert is_calibrated(shifted)
    trace = shifted.watch(images).trace
    assert all((trace[block, "readout"] > 0).mean() > 0.5 for block in range(3)), "shifted values are above zero"


def test_shifted_values_lose_little_by_the_clip_at_zero() -> None:
    modes = dataclasses.replace(CodingByPoint.all("signed"), v="unsigned")
    model, images = shaken_network(CONFIG.replace(row_scale="pow2", coding=modes))
    calibrate(model, [images])
    for old, new in zip(values(model, images), values(shift_to_unsigned(model, [images]), images), strict=True):
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
    remove_value_mean(model, images)
    for index, block in enumerate(model.blocks):
        mean = mean_value(model, images, index)
        torch.testing.assert_close(block.attn.proj(1.4 * mean), block.attn.proj(mean), atol=1e-4, rtol=1e-4)


def test_a_projection_that_ignores_mean_values_gives_the_mean_value_the_same_answer() -> None:
    model, images = shaken_network(CONFIG.replace(depth=1, coding=CodingByPoint.all("unsigned")))
    calibrate(model, [images])
    projection, mean = model.blocks[0].attn.proj, mean_value(model, images, 0)
    before = projection(mean).detach()
    remove_value_mean(model, images)
    torch.testing.assert_close(projection(mean).detach(), before, atol=1e-4, rtol=1e-4)
