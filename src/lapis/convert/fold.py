"""Convert a trained LapisViT to a deployed Network: steps, scales and biases are folded together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from lapis.codes import round_half_up
from lapis.config import LapisConfig
from lapis.deploy import arithmetic
from lapis.deploy.network import (
    DEFAULT_FRACTION_BITS,
    Affinities,
    Block,
    Layer,
    Leak,
    Network,
    Norm,
    Readout,
    check_deployable,
)
from lapis.deploy.schema import MAX_HEAD_EXPONENT, MAX_PATCH_SHIFT, code_distances
from lapis.deploy.thresholds import LADDERS, Grid
from lapis.errors import LapisError
from lapis.nn import LapisViT, is_calibrated
from lapis.nn.block import TransformerBlock
from lapis.nn.quantizer import ActivationQuantizer, Linear, required
from lapis.preprocess import Preprocess

Float64 = npt.NDArray[np.float64]

# Grey as Pillow and most decoders make it (ITU-R 601): the deployed network takes colours and weighs them itself.
LUMA = (0.299, 0.587, 0.114)


def from_model(
    model: LapisViT,
    preprocess: Preprocess | None = None,
    class_names: Sequence[str] = (),
    fraction_bits: int = DEFAULT_FRACTION_BITS,
) -> Network:
    """The deployed form of a trained network.

    Without `preprocess`, ImageNet's mean and standard deviation at the network's own size.
    """
    config = model.config
    check_deployable(config)
    if not is_calibrated(model):
        raise LapisError("the network has no steps yet; calibrate it on a few images, or train it, before converting")
    preprocess = preprocess or Preprocess(config.image_size)
    patch_weight, patch_shift, patch_bias = _fold_patches(model, preprocess, fraction_bits)
    head_weight, head_bias, head_exponent = _fold_head(model)
    return Network(
        config=config.packed(),
        preprocess=preprocess,
        class_names=tuple(class_names),
        fraction_bits=fraction_bits,
        patch_weight=patch_weight,
        patch_shift=patch_shift,
        position=_fold_position(model, patch_bias, fraction_bits),
        blocks=tuple(_fold_block(config, block, fraction_bits) for block in model.blocks),
        head_weight=head_weight,
        head_bias=head_bias,
        head_exponent=head_exponent,
    )


def _fold_block(config: LapisConfig, block: TransformerBlock, fraction_bits: int) -> Block:
    attn, mlp = block.attn, block.mlp
    attention_in, qk, v, readout = (_grid(required(q)) for q in (attn.input, attn.qk, attn.v, attn.readout))
    mlp_in, hidden = _grid(required(mlp.input)), _grid(required(mlp.hidden))
    d = config.width
    # The three parts of the joint layer have the units of the quantizers after them.
    unit = np.repeat([qk.step, qk.step, v.step], d)
    origin = np.repeat([qk.offset, qk.offset, v.offset], d)
    rise, fall = LADDERS[config.activation](hidden)
    stored = attn.relation.fold(code_distances(config))
    return Block(
        attention_norm=_fold_norm(block.norm1, attention_in),
        qkv=_fold_linear(attn.qkv, attention_in, unit, origin, 0.5),
        leak=stored if isinstance(stored, Leak) else None,
        readout=Readout(
            scale=np.array(v.step / readout.step, dtype=np.float32),
            shift=np.array((v.offset - readout.offset) / readout.step + 0.5, dtype=np.float32),
        ),
        proj=_fold_residual(attn.proj, readout, block.gamma_1, fraction_bits),
        mlp_norm=_fold_norm(block.norm2, mlp_in),
        fc1=_fold_linear(mlp.fc1, mlp_in, np.ones(config.hidden), np.zeros(config.hidden), 0.0),
        rise=rise,
        fall=fall,
        fc2=_fold_residual(mlp.fc2, hidden, block.gamma_2, fraction_bits),
        affinity=stored if isinstance(stored, Affinities) else None,
    )


def _fold_norm(norm: nn.LayerNorm, grid: Grid) -> Norm:
    gain = _numpy(norm.weight) / grid.step
    shift = (_numpy(norm.bias) - grid.offset) / grid.step + 0.5
    return Norm(gain.astype(np.float32), shift.astype(np.float32))


def _fold_linear(layer: Linear, source: Grid, unit: Float64, origin: Float64, extra: float) -> Layer:
    """The layer on codes of `source`: (y - origin) / unit + extra as scale and shift of its integer sums."""
    weight, step = _weights(layer)
    scale = source.step * step / unit
    bias = _numpy(layer.bias) + step * weight.astype(np.float64).sum(axis=1) * source.offset
    shift = (bias - origin) / unit + extra
    return Layer(weight, scale.astype(np.float32), shift.astype(np.float32))


def _fold_residual(layer: Linear, source: Grid, gamma: Tensor | None, fraction_bits: int) -> Layer:
    """The layer's output in units of the residual stream, layer scale included; the 1/2 is for rounding."""
    weight, step = _weights(layer)
    gain = np.ones(len(weight)) if gamma is None else _numpy(gamma)
    # The sign goes to the weights, so that a network without layer scale can be rebuilt from the numbers.
    sign = np.where(gain < 0, -1, 1).astype(weight.dtype)
    weight = sign[:, None] * weight
    unit = np.abs(gain) * 2.0**fraction_bits
    scale = source.step * step * unit
    bias = sign * _numpy(layer.bias) + step * weight.astype(np.float64).sum(axis=1) * source.offset
    return Layer(weight, scale.astype(np.float32), (bias * unit + 0.5).astype(np.float32))


def _fold_patches(
    model: LapisViT, preprocess: Preprocess, fraction_bits: int
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8], Float64]:
    """(pixel/255 - mean)/std folded into the patch weights (D, P*P*3), each channel at its own power of two."""
    projection = model.patch_embed.proj
    assert projection.bias is not None
    mean, std = np.array(preprocess.mean), np.array(preprocess.std)
    real = _numpy(projection.weight).transpose(0, 2, 3, 1) * _colours(model.config, preprocess) / std
    bias = _numpy(projection.bias) - (real * mean).sum(axis=(1, 2, 3))
    pixel = real.reshape(real.shape[0], -1) / 255.0
    weight = np.zeros(pixel.shape, dtype=np.int16)
    shift = np.zeros(pixel.shape[0], dtype=np.uint8)
    for channel, row in enumerate(pixel):
        for extra in range(MAX_PATCH_SHIFT, -1, -1):
            scaled = round_half_up(np.ldexp(row, fraction_bits + extra))
            if np.abs(scaled).max() <= arithmetic.INT16.max and 255 * np.abs(scaled).sum() < 1 << 31:
                weight[channel], shift[channel] = scaled.astype(np.int16), extra
                break
        else:
            raise LapisError(
                f"patch embedding channel {channel} has weights up to {np.abs(real[channel]).max():.4g}, too large for "
                f"{fraction_bits} fractional bits; convert with fewer"
            )
    return weight, shift, bias


def _colours(config: LapisConfig, preprocess: Preprocess) -> Float64:
    """The share of red, green and blue in each channel of the image that was trained on, for three colours or grey."""
    if config.image_channels == 3:
        return np.ones(3)
    if len(set(preprocess.mean)) > 1 or len(set(preprocess.std)) > 1:
        raise LapisError(
            f"a network of grey images has one mean and one deviation, not mean={preprocess.mean} and "
            f"std={preprocess.std}; pass a Preprocess with three equal ones, those that it was trained with"
        )
    return np.array(LUMA)


def _fold_position(model: LapisViT, patch_bias: Float64, fraction_bits: int) -> npt.NDArray[np.int32]:
    """The first value of each token: class token or patch bias, plus the position where it is absolute."""
    rows = np.stack([_numpy(model.cls_token).reshape(-1), patch_bias])
    if model.pos_embed is not None:
        rows = rows[np.minimum(np.arange(model.config.tokens), 1)] + _numpy(model.pos_embed)[0]
    return _fixed_point(rows, fraction_bits, arithmetic.STREAM_LIMIT - 1, "position").astype(np.int32)


def _fold_head(model: LapisViT) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], int]:
    """The last norm's gain and shift folded into the head, at one power of two for all classes."""
    real = _numpy(model.classifier.weight)
    weight = real * _numpy(model.norm.weight)
    bias = _numpy(model.classifier.bias) + real @ _numpy(model.norm.bias)
    for exponent in range(MAX_HEAD_EXPONENT, -1, -1):
        scaled = round_half_up(np.ldexp(weight, exponent))
        if np.abs(scaled).max() <= arithmetic.INT16.max:
            bits = exponent + arithmetic.POOLED_BITS
            return scaled.astype(np.int16), _fixed_point(bias, bits, (1 << 52) - 1, "head bias"), exponent
    raise LapisError(f"head weights reach {np.abs(weight).max():.4g}, too large for 16 bits")


def _fixed_point(values: Float64, bits: int, limit: int, what: str) -> npt.NDArray[np.int64]:
    """floor(values 2**bits + 1/2); an error outside -limit..limit."""
    scaled = round_half_up(np.ldexp(values, bits))
    if not np.isfinite(scaled).all() or float(np.abs(scaled).max(initial=0.0)) > limit:
        raise LapisError(f"{what} reaches {float(np.abs(values).max()):.6g}, beyond the deployed fixed point")
    return np.asarray(scaled, dtype=np.int64)


def _weights(layer: Linear) -> tuple[npt.NDArray[Any], Float64]:
    """Integer weights and their steps (O,)."""
    assert layer.quantizer is not None
    return layer.quantizer.codes(layer.weight).cpu().numpy(), _numpy(layer.quantizer.step).reshape(-1)


def _grid(quantizer: ActivationQuantizer) -> Grid:
    offset = 0.0 if quantizer.offset is None else float(quantizer.offset.detach())
    return Grid(float(quantizer.step.detach()), offset, quantizer.low, quantizer.high)


def _numpy(tensor: Tensor) -> Float64:
    array: Float64 = tensor.detach().cpu().numpy().astype(np.float64)
    return array
