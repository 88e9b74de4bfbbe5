"""Lapis attention as a layer of other people's networks."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from lapis.config import CodingByPoint, LapisConfig
from lapis.errors import LapisError
from lapis.nn import LapisAttention, calibrate, is_calibrated, replace_attention
from lapis.nn.attention import Attention

TINY = {"img_size": 28, "embed_dim": 24, "depth": 2, "num_heads": 4, "num_classes": 3}


def test_the_layer_is_the_attention_of_a_network_with_the_same_fields() -> None:
    torch.manual_seed(0)
    layer = LapisAttention(12, 3, window=7, row_scale="pow2", readout="spikes", weight_bits=6)
    config = LapisConfig(width=12, depth=1, heads=3, window=7, coding=CodingByPoint.all("signed")).replace(
        row_scale="pow2", readout="spikes", weight_bits=6
    )
    inside = Attention(config, 0)
    x = torch.randn(2, 5, 12)
    calibrate(layer, x)
    inside.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), inside(x))


def test_gradients_reach_every_parameter() -> None:
    layer = LapisAttention(12, 3)
    calibrate(layer, torch.randn(2, 5, 12))
    layer(torch.randn(2, 5, 12)).square().sum().backward()
    assert [name for name, parameter in layer.named_parameters() if parameter.grad is None] == []


def test_nan_is_called_nan() -> None:
    layer, x = LapisAttention(12, 3), torch.randn(2, 5, 12)
    calibrate(layer, [x])
    x[1, 2, 3] = float("nan")
    with pytest.raises(LapisError, match="x holds NaN"):
        layer(x)


def test_watch_gives_the_same_output_and_codes_in_the_window() -> None:
    layer, x = LapisAttention(12, 3, window=7, readout="spikes"), torch.randn(2, 5, 12)
    calibrate(layer, [x])
    output, trace = layer.watch(x)
    assert torch.equal(output, layer(x))
    assert {point for _, point in trace} == {"attention_in", "q", "k", "v", "readout"}
    assert all(trace[key].min() >= -7 and trace[key].max() <= 7 and trace[key].any() for key in trace)


@pytest.mark.parametrize("name", ["vit_small_patch14_reg4_dinov2", "vit_base_patch16_siglip_224"])
def test_a_timm_model_is_exchanged_in_place(timm: ModuleType, name: str) -> None:
    torch.manual_seed(0)
    patch = 14 if "patch14" in name else 16
    model = timm.create_model(name, **{**TINY, "img_size": 2 * patch}).eval()
    before = [block.attn.qkv.weight.detach().clone() for block in model.blocks]
    assert replace_attention(model, window=63) == 2
    images = torch.randn(2, 3, 2 * patch, 2 * patch)
    calibrate(model, [images])
    assert is_calibrated(model)
    assert model(images).shape == (2, 3)
    for block, weight in zip(model.blocks, before, strict=True):
        assert isinstance(block.attn, LapisAttention)
        assert block.attn.heads == 4
        assert torch.equal(block.attn.qkv.weight, weight)
        assert not block.attn.training


def test_with_the_dot_product_and_no_quantizers_the_exchange_changes_nothing(timm: ModuleType) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_small_patch14_reg4_dinov2", **TINY).eval()
    images = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        before = model(images)
        replace_attention(model, relation="dot", quantize=False)
        torch.testing.assert_close(model(images), before)


def test_what_has_no_counterpart_is_refused_and_left_alone(timm: ModuleType) -> None:
    normed = timm.create_model("vit_small_patch14_reg4_dinov2", **TINY, qk_norm=True)
    with pytest.raises(LapisError, match="a norm of queries"):
        replace_attention(normed)
    assert not any(isinstance(part, LapisAttention) for part in normed.modules())
    with pytest.raises(LapisError, match="no timm Attention to exchange, but MultiheadAttention"):
        replace_attention(nn.TransformerEncoderLayer(8, 2))


def test_a_mask_and_a_wrong_shape_are_refused() -> None:
    layer = LapisAttention(12, 3)
    with pytest.raises(LapisError, match="has no mask"):
        layer(torch.randn(1, 4, 12), is_causal=True)
    with pytest.raises(LapisError, match=r"takes \(batch, tokens, 12\)"):
        layer(torch.randn(4, 12))
    with pytest.raises(LapisError, match="heads=5 does not divide width=12"):
        LapisAttention(12, 5)
    with pytest.raises(LapisError, match="did you mean 'relation'"):
        LapisAttention(12, 3, relatoin="dot")
