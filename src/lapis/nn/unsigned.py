"""Initialise unsigned networks by folding offsets into biases.

A spike has no sign, so an unsigned network that starts from a dense one loses every negative value. A constant added
by the bias in front of a point and subtracted by the bias behind it brings those values into 0..T and changes nothing
else. Coding `offset` learns the same constant as a parameter; here it becomes part of an unsigned network. A shifted
network is hardly ever silent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from lapis.config import Coding, LapisConfig
from lapis.nn.block import TransformerBlock
from lapis.nn.calibrate import calibrate
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import ActivationQuantizer, Linear, required
from lapis.nn.symmetry import find_positive_values
from lapis.relations import rule_of

# The points with a bias in front of them: a norm's, or that of the layer that makes q, k and v.
SHIFTED = ("attention_in", "qk", "v", "mlp_in")
# A distance does not see a shift that queries and keys share; a product does.
SHIFTED_WITHOUT_QK = ("attention_in", "v", "mlp_in")


@torch.no_grad()
def shift_to_unsigned(model: LapisViT, batches: Iterable[Tensor]) -> LapisViT:
    """`model` calibrated on images, each unsigned point of SHIFTED shifted by the best offset for it.

    Unsigned values are rotated first and shifted by less: a power-of-two row multiplies the shift with its mass.
    """
    twin = LapisViT(_exchange(model.config, "unsigned", "offset"))
    twin.load_state_dict(model.state_dict(), strict=False)
    twin.to(model.norm.weight.device).train(model.training)
    images = list(batches)
    calibrate(twin, images)
    if model.config.coding.v == "unsigned":
        find_positive_values(twin, torch.cat(images).float())
        for block in twin.blocks:
            quantizer = required(block.attn.v)
            _offset(quantizer).zero_()
            quantizer.mark_ready(False)
    shifted = fold_offsets(twin)
    calibrate(shifted, images, missing_only=True)  # v and the readout get other values than before
    return shifted


@torch.no_grad()
def remove_value_mean(model: LapisViT, images: Tensor) -> None:
    """Make each output projection blind to the mean value of a head: W - (W m) m^T / |m|^2, and W m in its bias.

    Unsigned values have a mean m far above zero, and a power-of-two row multiplies it with its mass, 0.71 to 1.41. One
    direction of C carries m; without it only the differences between values are scaled, as in a signed network.
    """
    for index, block in enumerate(model.blocks):
        attention, step = block.attn, required(block.attn.v).step
        codes = torch.from_numpy(model.watch(images).trace[index, "v"]).to(step.device)  # (B, N, D)
        mean = (codes.double().mean(dim=(0, 1)) * step).unflatten(0, (attention.heads, -1)).to(step.dtype)  # (H, C)
        weight = attention.proj.weight.unflatten(1, (attention.heads, -1))  # (D, H, C), the same memory
        heard = torch.einsum("dhc,hc->dh", weight, mean)
        attention.proj.bias.add_(heard.sum(dim=1))
        weight.sub_(heard.unsqueeze(-1) * mean / mean.square().sum(dim=-1, keepdim=True).clamp_min(1e-12))


@torch.no_grad()
def fold_offsets(model: LapisViT) -> LapisViT:
    """The network of `model` with the offsets at SHIFTED points moved into the biases around them: the same codes."""
    folded = LapisViT(_exchange(model.config, "offset", "unsigned"))
    own = folded.state_dict().keys()
    folded.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name in own})
    folded.to(model.norm.weight.device).train(model.training)
    for new, old in zip(folded.blocks, model.blocks, strict=True):
        _fold_block(new, old, model.config.width)
    return folded


def _fold_block(new: TransformerBlock, old: TransformerBlock, width: int) -> None:
    attention = new.attn
    _move(_offset(old.attn.input), new.norm1.bias, attention.qkv)
    _move(_offset(old.mlp.input), new.norm2.bias, new.mlp.fc1)
    shift = _offset(old.attn.v)
    _move(shift, attention.qkv.bias[2 * width :], attention.proj)
    if attention.qk is not None and attention.qk.offset is None:
        attention.qkv.bias[: 2 * width] -= _offset(old.attn.qk)
    if attention.readout is not None and shift:
        if attention.readout.offset is None:
            attention.readout.mark_ready(False)
        else:
            attention.readout.offset.sub_(shift)


def _exchange(config: LapisConfig, old: Coding, new: Coding) -> LapisConfig:
    """`config` with coding `new` for `old` at the points that can be shifted."""
    points = SHIFTED if rule_of(config.relation).ignores_shifts else SHIFTED_WITHOUT_QK
    changes = {point: new for point in points if getattr(config.coding, point) == old}
    return config.replace(coding=dataclasses.replace(config.coding, **changes))


def _offset(quantizer: ActivationQuantizer | None) -> Tensor:
    return torch.zeros(()) if quantizer is None or quantizer.offset is None else quantizer.offset


def _move(offset: Tensor, before: Tensor, behind: Linear) -> None:
    """x - offset in front of a point, W (z s) + W offset behind it."""
    weight = behind.weight if behind.quantizer is None else behind.quantizer(behind.weight)
    before.sub_(offset)
    behind.bias.add_(offset * weight.sum(dim=1))
