"""Free symmetries of a network: axes along which few values are large, and channels of equal size.

A deadline silences the smallest values. How much that loses depends on the axes in which values are written, and two
kinds of axes are free to choose. All tokens between blocks may be rotated together, if the layers that write and read
them are rotated with them: a norm does not see it as long as the mean of a token stays the same. The values of a head
may be rotated, if its part of the output projection is. Queries and keys may not: an l1 distance depends on the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import Coding
from lapis.errors import LapisError
from lapis.nn.attention import Attention
from lapis.nn.calibrate import calibrate
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import Linear
from lapis.nn.relations import Pairwise

# The search for a rotation: Adam on the entries of a skew-symmetric matrix.
STEPS = 250
RATE = 0.02
BATCH = 2048
# Tokens that are kept per place of measurement.
TOKENS = 4096
# The magnitude of a channel: that which one value in a thousand exceeds.
QUANTILE = 0.999
SMALLEST = 1e-4


@torch.no_grad()
def rotate_basis(model: LapisViT, images: Tensor, positive: bool = False) -> None:
    """Rotate `model` in place to the axes in which the values seen on `images` have the least l1 norm.

    With `positive`, to those in which negative values have the least power. Its logits stay the same but for rounding;
    the quantizers of changed values and weights are calibrated anew.
    """
    _check_relation(model)
    tokens, values = _collect(model, images)
    rotate_tokens(model, _good_rotations(torch.cat(tokens)[None], True, positive)[0])
    for block, seen in zip(model.blocks, values, strict=True):
        heads = torch.cat([part / _root_mean_square(part) for part in seen], dim=1)
        rotate_values(block.attn, _good_rotations(heads, False, positive))
    for _, point, quantizer in model.quantizers():
        if point in ("attention_in", "v", "readout", "mlp_in"):
            quantizer.mark_ready(False)
    calibrate(model.eval(), images, missing_only=True)


@torch.no_grad()
def rotate_tokens(model: LapisViT, rotation: Tensor) -> None:
    """Write all tokens x between blocks as x R, R (D, D) orthogonal with R 1 = 1; norms lose their gains and biases."""
    embed = model.patch_embed.proj
    embed.weight.copy_(torch.einsum("ed,eabc->dabc", rotation, embed.weight))
    assert embed.bias is not None
    for row in (embed.bias, model.cls_token, *([] if model.pos_embed is None else [model.pos_embed])):
        row.copy_(row @ rotation)
    for block in model.blocks:
        for norm, reader, writer, gain in (
            (block.norm1, block.attn.qkv, block.attn.proj, block.gamma_1),
            (block.norm2, block.mlp.fc1, block.mlp.fc2, block.gamma_2),
        ):
            _take_grid(reader)
            _take_grid(writer)
            _turn_reader(norm, reader, rotation)
            if gain is not None:
                writer.weight.mul_(gain[:, None])
                writer.bias.mul_(gain)
                gain.fill_(1.0)
            writer.weight.copy_(rotation.T @ writer.weight)
            writer.bias.copy_(writer.bias @ rotation)
    _turn_reader(model.norm, model.classifier, rotation)


@torch.no_grad()
def rotate_values(attention: Attention, rotations: Tensor) -> None:
    """Write the values v of each head as v R_h, rotations (H, C, C); its relation must be a sum of values."""
    heads, channels, _ = rotations.shape
    width = heads * channels
    _take_grid(attention.qkv)
    _take_grid(attention.proj)
    weight = attention.qkv.weight[2 * width :]
    weight.copy_(torch.einsum("hed,hew->hdw", rotations, weight.unflatten(0, (heads, channels))).flatten(0, 1))
    bias = attention.qkv.bias[2 * width :]
    bias.copy_(torch.einsum("hed,he->hd", rotations, bias.unflatten(0, (heads, channels))).flatten())
    columns = attention.proj.weight.unflatten(1, (heads, channels))
    attention.proj.weight.copy_(torch.einsum("whe,hed->whd", columns, rotations).flatten(1))


def _check_relation(model: LapisViT) -> None:
    """Refuse a relation that is not linear in the values: it depends on their axes."""
    if not all(isinstance(block.attn.relation, Pairwise) for block in model.blocks):
        raise LapisError(
            f"relation={model.config.relation!r} does not sum values by weights, so their axes cannot be changed; set "
            "sparsity.rotate_basis=false"
        )


def _turn_reader(norm: nn.LayerNorm, layer: nn.Linear, rotation: Tensor) -> None:
    """W (g x + b) + c  ->  (W diag(g) R) (x R) + (c + W b), row vectors x."""
    layer.bias.add_(layer.weight @ norm.bias)
    layer.weight.copy_(layer.weight * norm.weight @ rotation)
    norm.weight.fill_(1.0)
    norm.bias.zero_()


def _take_grid(layer: Linear) -> None:
    """Replace quantized weights by what they stand for; the rotated ones lie on no grid yet."""
    if layer.quantizer is not None and bool(layer.quantizer.ready):
        layer.weight.copy_(layer.quantizer(layer.weight))
        layer.quantizer.mark_ready(False)


def _collect(model: LapisViT, images: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Normalised tokens (n, D) in front of each block's layers; for each block, values and mixed values (H, n, C)."""
    heads, width = model.config.heads, model.config.width
    tokens: list[Tensor] = []
    values: list[list[Tensor]] = []

    def note_tokens(_: nn.Module, inputs: tuple[Tensor]) -> None:
        tokens.append(_sample(F.layer_norm(inputs[0], (width,))))

    def note_values(_: nn.Module, __: tuple[Tensor], out: Tensor) -> None:
        values.append([_by_head(out[..., 2 * width :], heads)])

    def note_mixed(_: nn.Module, inputs: tuple[Tensor]) -> None:
        values[-1].append(_by_head(inputs[0], heads))

    with ExitStack() as hooks:
        for block in model.blocks:
            for hook in (
                block.norm1.register_forward_pre_hook(note_tokens),
                block.norm2.register_forward_pre_hook(note_tokens),
                block.attn.qkv.register_forward_hook(note_values),
                block.attn.proj.register_forward_pre_hook(note_mixed),
            ):
                hooks.callback(hook.remove)
        model.eval()(images)
    return tokens, values


def _by_head(x: Tensor, heads: int) -> Tensor:
    """(B, N, H C) -> (H, n, C)."""
    split: Tensor = _sample(x).unflatten(-1, (heads, -1))
    return split.transpose(0, 1)


def _root_mean_square(heads: Tensor) -> Tensor:
    """(H, n, C) -> (H, 1, 1)."""
    return heads.square().mean(dim=(1, 2), keepdim=True).sqrt().clamp_min(1e-12)


def _sample(x: Tensor) -> Tensor:
    rows = x.detach().float().flatten(0, -2)
    return rows[:: max(1, len(rows) // TOKENS)].clone()


def _good_rotations(rows: Tensor, keep_mean: bool, positive: bool = False) -> Tensor:
    """Orthogonal R (G, D, D) with small means of |x R| over rows x (G, n, D); with `keep_mean`, R 1 = 1.

    With `positive`, it is the mean square of the negative parts of x R that is small.
    """
    rotations, _ = _search(
        rows, lambda turned, _: turned.clamp_max(0).square().mean() if positive else turned.abs().mean(), keep_mean
    )
    return rotations


@torch.enable_grad()
def _search(rows: Tensor, loss: Callable[[Tensor, Tensor], Tensor], keep_mean: bool = False) -> tuple[Tensor, Tensor]:
    """Orthogonal R (G, D, D) and shifts s (G, D) with a small loss(x R, s), for rows x (G, n, D)."""
    groups, count, width = rows.shape
    generator = torch.Generator().manual_seed(0)
    entries = torch.zeros(groups, width, width, device=rows.device, requires_grad=True)
    shifts = torch.zeros(groups, width, device=rows.device, requires_grad=True)
    centre = torch.eye(width, device=rows.device) - (1 / width if keep_mean else 0)
    optimizer = torch.optim.Adam([entries, shifts], lr=RATE)

    def rotations() -> Tensor:
        return torch.matrix_exp(centre @ (entries - entries.mT) @ centre)

    for _ in range(STEPS):
        chosen = torch.randint(count, (min(BATCH, count),), generator=generator).to(rows.device)
        optimizer.zero_grad()
        (groups * loss(rows[:, chosen] @ rotations(), shifts)).backward()
        optimizer.step()
    return rotations().detach(), shifts.detach()


@torch.no_grad()
def equalise(model: LapisViT, dense: LapisViT, tokens: Sequence[Tensor]) -> None:
    """Equalise what the norms and the values of `model` give; it has the weights of `dense`.

    One step serves all channels of an activation, so a channel that is ten times smaller than the largest keeps a tenth
    of the codes. Half of a channel's spread is moved into the weights that read it, which have a step per output; the
    dense network stays the same. Where only positive values spike, a channel whose negative values carry more power is
    negated too. `tokens[l]` (B, N, D) go into block l of it.
    """
    _width, coding = model.config.width, model.config.coding
    for block, source, x in zip(model.blocks, dense.blocks, tokens, strict=True):
        attention_in = source.norm1(x)
        mlp_in = source.norm2(x + source.attention_update(attention_in))
        for norm, linear, seen, mode in (
            (block.norm1, block.attn.qkv, attention_in, coding.attention_in),
            (block.norm2, block.mlp.fc1, mlp_in, coding.mlp_in),
        ):
            factor = _factor(seen, linear.weight) * _signs(seen, mode)
            norm.weight.div_(factor)
            norm.bias.div_(factor)
            linear.weight.mul_(factor)
        qkv, projection = block.attn.qkv, block.attn.proj
        q, k, v = source.attn.qkv(attention_in).chunk(3, dim=-1)
        shared = _signs(torch.cat([q, k]), coding.qk)
        factor = _factor(v, projection.weight) * _signs(v, coding.v)
        rows = torch.cat([shared, shared, 1 / factor])
        qkv.weight.mul_(rows[:, None])
        qkv.bias.mul_(rows)
        projection.weight.mul_(factor)


def _factor(values: Tensor, reader: Tensor) -> Tensor:
    """What each channel of `values` (..., D) is divided by, given the weights (O, D) that read it; their mean is 1."""
    sizes = values.flatten(0, -2).float().abs().quantile(QUANTILE, dim=0).clamp_min(SMALLEST)
    weights = reader.abs().amax(dim=0).clamp_min(SMALLEST)
    factor = (sizes / weights).sqrt()
    return factor / factor.log().mean().exp()


def _signs(values: Tensor, mode: Coding) -> Tensor:
    """1 or -1 for each channel of `values` (..., D): with it, its positive values carry most power if they must."""
    rows = values.flatten(0, -2)
    power = (rows * rows.abs()).sum(dim=0)
    return torch.where(power < 0, -1.0, 1.0) if mode == "unsigned" else torch.ones_like(power)
