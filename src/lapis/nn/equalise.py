"""Equalise channels: a free symmetry of a dense network that makes its activations and weights easier to quantize.

One step serves all channels of an activation, so a channel that is ten times smaller than the largest keeps a tenth of
the codes. Dividing a channel by a factor and multiplying the weights that read it by the same factor changes nothing in
the dense network. Half of a channel's spread is moved into the weights, which have a step per output.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lapis.nn.model import LapisViT

# The magnitude of a channel: that which one value in a thousand exceeds.
QUANTILE = 0.999
SMALLEST = 1e-4


@torch.no_grad()
def equalise(model: LapisViT, dense: LapisViT, tokens: Sequence[Tensor]) -> None:
    """Equalise what the norms and the values of `model` give; it has the weights of `dense`.

    `tokens[l]` (B, N, D) go into block l of the dense network.
    """
    width = model.config.width
    for block, source, x in zip(model.blocks, dense.blocks, tokens, strict=True):
        attention_in = source.norm1(x)
        mlp_in = source.norm2(x + source.attention_update(attention_in))
        for norm, linear, seen in ((block.norm1, block.attn.qkv, attention_in), (block.norm2, block.mlp.fc1, mlp_in)):
            factor = _factor(seen, linear.weight)
            norm.weight.div_(factor)
            norm.bias.div_(factor)
            linear.weight.mul_(factor)
        qkv, projection = block.attn.qkv, block.attn.proj
        factor = _factor(source.attn.qkv(attention_in)[..., 2 * width :], projection.weight)
        qkv.weight[2 * width :].div_(factor[:, None])
        qkv.bias[2 * width :].div_(factor)
        projection.weight.mul_(factor)


def _factor(values: Tensor, reader: Tensor) -> Tensor:
    """What each channel of `values` (..., D) is divided by, given the weights (O, D) that read it; their mean is 1."""
    sizes = values.flatten(0, -2).float().abs().quantile(QUANTILE, dim=0).clamp_min(SMALLEST)
    weights = reader.abs().amax(dim=0).clamp_min(SMALLEST)
    factor = (sizes / weights).sqrt()
    return factor / factor.log().mean().exp()
