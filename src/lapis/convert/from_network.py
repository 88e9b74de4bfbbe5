"""Convert a deployed Network back to a LapisViT that can be trained further.

A packed file holds only products of steps, scales and biases. Here they are split again, so that norms have gains near
one and the q, k, v weights have a usual size; every split gives the same codes. Offsets that are part of the biases
around them are set to zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.deploy.network import Block, Layer, Network, Norm
from lapis.deploy.thresholds import ladder_grid
from lapis.nn.block import TransformerBlock
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import ActivationQuantizer, Calibrated, Linear, required

Float64 = npt.NDArray[np.float64]

# The root mean square of a trained ViT's weights; it sets the unit of q, k and v, which does not affect the codes.
TYPICAL_WEIGHT = 0.05


@torch.no_grad()
def to_model(network: Network) -> LapisViT:
    """The network in torch, calibrated and in evaluation mode; converting it again gives the same integers."""
    model = LapisViT(network.config).eval()
    _set_embedding(model, network)
    for target, block in zip(model.blocks, network.blocks, strict=True):
        _set_block(target, block, network.config, network.fraction_bits)
    _set(model.norm.weight, np.ones(network.config.width))
    _set(model.norm.bias, np.zeros(network.config.width))
    _set(model.classifier.weight, np.ldexp(network.head_weight.astype(np.float64), -network.head_exponent))
    _set(model.classifier.bias, network.real_logits(network.head_bias))
    for module in model.modules():
        if isinstance(module, Calibrated):
            module.mark_ready()
    return model


def _set_embedding(model: LapisViT, network: Network) -> None:
    """Patch weights without the folded preprocessing; the first value of tokens goes to positions or the bias."""
    config, projection = network.config, model.patch_embed.proj
    assert projection.bias is not None
    mean, std = np.array(network.preprocess.mean), np.array(network.preprocess.std)
    bits = network.patch_shift.astype(np.int64) + network.fraction_bits
    per_byte = np.ldexp(network.patch_weight.astype(np.float64), -bits[:, None])
    real = per_byte.reshape(config.width, config.patch_size, config.patch_size, 3) * 255.0
    _set(projection.weight, (real * std).transpose(0, 3, 1, 2))
    start = np.ldexp(network.position.astype(np.float64), -network.fraction_bits)
    bias = (real * mean).sum(axis=(1, 2, 3))
    if model.pos_embed is None:
        _set(model.cls_token, start[:1][None])
        _set(projection.bias, bias + start[1])
    else:
        _set(model.cls_token, np.zeros((1, 1, config.width)))
        _set(model.pos_embed, start[None])
        _set(projection.bias, bias)


def _set_block(target: TransformerBlock, block: Block, config: LapisConfig, fraction_bits: int) -> None:
    attn, mlp, d = target.attn, target.mlp, config.width
    qk, v, readout, mlp_hidden = (required(q) for q in (attn.qk, attn.v, attn.readout, mlp.hidden))
    input_step = _set_norm(target.norm1, block.attention_norm, required(attn.input))
    # The mean square of each row of the real weights, for an output step of one.
    scale = block.qkv.scale.astype(np.float64) / input_step
    squares = np.square(block.qkv.weight.astype(np.float64)).mean(axis=1) * np.square(scale)
    sizes = (float(np.sqrt(part.mean())) for part in np.split(squares, [2 * d]))
    qk_step, v_step = (TYPICAL_WEIGHT / (size or TYPICAL_WEIGHT) for size in sizes)
    readout_step = v_step / float(block.readout.scale)
    v_offset, readout_offset = 0.0, 0.0
    constant = (float(block.readout.shift) - 0.5) * readout_step
    if readout.offset is not None:
        readout_offset = -constant
    elif v.offset is not None:
        v_offset = constant
    _set_quantizer(qk, qk_step, 0.0)
    _set_quantizer(v, v_step, v_offset)
    _set_quantizer(readout, readout_step, readout_offset)
    unit, origin = np.repeat([qk_step, qk_step, v_step], d), np.repeat([0.0, 0.0, v_offset], d)
    _set_linear(attn.qkv, block.qkv, unit / input_step, (block.qkv.shift.astype(np.float64) - 0.5) * unit + origin)
    _set_residual(attn.proj, block.proj, readout_step, readout_offset, target.gamma_1, fraction_bits)
    attn.relation.unfold(block)
    mlp_step = _set_norm(target.norm2, block.mlp_norm, required(mlp.input))
    hidden = ladder_grid(block.rise, config.low("mlp_hidden"), mlp_hidden.offset is None, config.activation)
    _set_quantizer(mlp_hidden, hidden.step, hidden.offset)
    _set_linear(mlp.fc1, block.fc1, np.full(config.hidden, 1 / mlp_step), block.fc1.shift.astype(np.float64))
    _set_residual(mlp.fc2, block.fc2, hidden.step, hidden.offset, target.gamma_2, fraction_bits)


def _set_norm(target: nn.LayerNorm, norm: Norm, quantizer: ActivationQuantizer) -> float:
    """Set the norm, with gains near one, and the step of the quantizer after it."""
    gain, shift = norm.gain.astype(np.float64), norm.shift.astype(np.float64) - 0.5
    size = float(np.sqrt(np.square(gain).mean()))
    step = 1.0 / size if size > 0 else 1.0
    _set(target.weight, gain * step)
    _set(target.bias, shift * step)
    _set_quantizer(quantizer, step, 0.0)
    return step


def _set_linear(target: Linear, layer: Layer, unit: Float64, bias: Float64, offset: float = 0.0) -> None:
    """Set real weights from integer ones: each row's step is its scale times `unit`; codes stand for z s + offset."""
    step = layer.scale.astype(np.float64) * unit
    real = layer.weight.astype(np.float64) * step[:, None]
    _set(target.weight, real)
    _set(target.bias, bias - real.sum(axis=1) * offset)
    if target.quantizer is not None:
        _set(target.quantizer.log_step, np.log(step)[:, None])


def _set_residual(
    target: Linear, layer: Layer, step: float, offset: float, gamma: Tensor | None, fraction_bits: int
) -> None:
    """Set a layer that adds to the residual stream; layer scale keeps only the sign of each row."""
    sign = np.where(layer.scale < 0, -1.0, 1.0)
    if gamma is not None:
        _set(gamma, sign)
    positive = Layer(layer.weight, np.maximum(np.abs(layer.scale), np.finfo(np.float32).tiny), layer.shift)
    unit = np.full(len(sign), 1 / (step * 2.0**fraction_bits))
    _set_linear(target, positive, unit, sign * np.ldexp(layer.shift.astype(np.float64) - 0.5, -fraction_bits), offset)


def _set_quantizer(quantizer: ActivationQuantizer, step: float, offset: float) -> None:
    _set(quantizer.log_step, np.array(np.log(step)))
    if quantizer.offset is not None:
        _set(quantizer.offset, np.array(offset))


def _set(target: Tensor, values: npt.ArrayLike) -> None:
    target.copy_(torch.from_numpy(np.asarray(values, dtype=np.float32)).reshape(target.shape))
