"""The deployed arithmetic on torch tensors: it evaluates a trained network exactly as it is deployed, on any device.

Training rounds in a slightly different way, so evaluation uses this instead. Integers are stored in floats that hold
them exactly; every other operation is rounded as `lapis.deploy.arithmetic` defines it, in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lapis.convert.fold import from_model
from lapis.deploy import arithmetic
from lapis.deploy.network import Block, Layer, Network, Norm, check_deployable
from lapis.errors import LapisError
from lapis.nn import LapisViT, is_calibrated
from lapis.nn.attention import join_heads
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import as_integers
from lapis.ops.integer_attention.eager import integer_attention
from lapis.ops.integer_attention.reference import AffinityTables
from lapis.ops.row_scale.eager import pow2_exponent
from lapis.ops.tensors import round_half_up, silence
from lapis.preprocess import Preprocess
from lapis.trace import Point, Trace, Watched


class TorchExecutor(nn.Module):
    """images (B, S, S, 3) of bytes  ->  integer logits (B, classes) int64, those of the integer model."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.patch_weight = _constant(network.patch_weight.T.astype(np.float64))
        self.patch_unit = _constant(np.ldexp(1.0, -network.patch_shift.astype(np.int64)))
        self.position = _constant(network.position.astype(np.float64))
        self.halves = nn.ModuleList(
            half(network, index)
            for index in range(network.config.depth)
            for half in (AttentionExecutor, FeedForwardExecutor)
        )
        self.head_weight = _constant(network.head_weight.T.astype(np.float64))
        self.head_bias = _constant(network.head_bias.astype(np.float64))

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images, None)

    def watch(self, images: Tensor) -> Watched:
        """Integer logits, and the codes at every measuring point."""
        trace = Trace(self.config.window)
        return Watched(self._run(images, trace), trace)

    @torch.no_grad()
    def _run(self, images: Tensor, trace: Trace | None) -> Tensor:
        with torch.autocast(images.device.type, enabled=False):
            stream = self._embed(images)
            for half in self.halves:
                stream = half(stream, trace)
            return self._classify(stream)

    def _embed(self, images: Tensor) -> Tensor:
        """Patches to tokens: (B, S, S, 3) bytes -> (B, N, D) integers."""
        batch, grid, side = images.shape[0], self.config.grid, self.config.patch_size
        patches = images.view(batch, grid, side, grid, side, 3).permute(0, 1, 3, 2, 4, 5).reshape(batch, grid**2, -1)
        tokens = round_half_up((patches.double() @ self.patch_weight) * self.patch_unit) + self.position[1:]
        first = self.position[:1].expand(batch, -1, -1)
        return _saturated(torch.cat([first, tokens], dim=1))

    def _classify(self, stream: Tensor) -> Tensor:
        """Tokens (B, N, D) to integer logits (B, classes)."""
        pooled = _rounded_mean(stream[:, 1:], dim=1).double() if self.config.mean_pooling else stream[:, 0]
        unit = _standardised(pooled, self.network.eps) * float(1 << arithmetic.POOLED_BITS)
        token = round_half_up(unit).clamp(int(arithmetic.INT16.min), int(arithmetic.INT16.max))
        return (token.double() @ self.head_weight + self.head_bias).long()

    def real_logits(self, logits: Tensor) -> Tensor:
        """Integer logits as the real numbers that they stand for."""
        return torch.from_numpy(self.network.real_logits(logits.cpu().numpy()))


class DeployedEvaluator(nn.Module):
    """images (B, S, S, 3) of bytes  ->  real logits (B, classes), in FP32 and never under autocast.

    `exact` is whether they equal those of the deployed network, bit for bit.
    """

    def __init__(self, model: LapisViT | Network, preprocess: Preprocess) -> None:
        super().__init__()
        self.config, self.preprocess = model.config, preprocess
        self.runner: LapisViT | TorchExecutor
        if isinstance(model, Network):
            self.runner = TorchExecutor(model)
        else:
            self.runner = TorchExecutor(from_model(model, preprocess)) if _is_deployable(model) else model
            self.to(next(model.parameters()).device).train(model.training)
        self.exact = isinstance(self.runner, TorchExecutor)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        if isinstance(self.runner, TorchExecutor):
            return self.runner.real_logits(self.runner(images))
        with torch.autocast(images.device.type, enabled=False):
            logits: Tensor = self.runner(normalise(images, self.preprocess))
        return logits

    def watch(self, images: Tensor) -> Watched:
        """Real logits, and the codes at every measuring point."""
        if isinstance(self.runner, TorchExecutor):
            logits, trace = self.runner.watch(images)
            return Watched(self.runner.real_logits(logits), trace)
        return self.runner.watch(normalise(images, self.preprocess))


def _is_deployable(model: LapisViT) -> bool:
    try:
        check_deployable(model.config)
    except LapisError:
        return False
    return is_calibrated(model)


class PointCodes(NamedTuple):
    """The codes of a measuring point: low..high, and 0 where the magnitude is below `min_code`."""

    low: int
    high: int
    min_code: int

    @classmethod
    def of(cls, network: Network, point: Point, block: int) -> PointCodes:
        return cls(network.low(point), network.config.window, network.min_code(point, block))

    def codes(self, whole: Tensor) -> Tensor:
        return silence(whole.clamp(self.low, self.high), self.min_code)


class AttentionExecutor(nn.Module):
    """The first half of a block: (B, N, D) stream -> stream."""

    def __init__(self, network: Network, index: int) -> None:
        super().__init__()
        block, tables, delay = network.blocks[index], network.tables[index], network.delays[index]
        self.index, self.heads = index, network.config.heads
        self.norm = NormExecutor(block.attention_norm, network.eps)
        self.qkv, self.proj = LayerExecutor(block.qkv), LayerExecutor(block.proj)
        self.scale, self.shift = float(block.readout.scale), float(block.readout.shift)
        self.ranges = {point: PointCodes.of(network, point, index) for point in _ATTENTION_POINTS}
        self.table = _constant(tables.table.astype(np.float64))
        self.row_exponent = _constant(tables.row_exponent.astype(np.int64))
        self.delay = None if delay is None else _constant(delay)
        self.compared_by = network.compared_by
        # 2**-k of every row sum: a table, because torch computes powers of two by a rounded exponential.
        self.powers = _constant(np.ldexp(np.float32(1), -np.arange(32)))

    def forward(self, stream: Tensor, trace: Trace | None) -> Tensor:
        codes = self._floor(self.norm(stream), "attention_in")
        q, k, v = self.qkv(codes).chunk(3, dim=-1)
        q, k, v = self._floor(q, "q"), self._floor(k, "k"), self._floor(v, "v")
        readout = self._read_out(q, k, v)
        _note(trace, self.index, attention_in=codes, q=q, k=k, v=v, readout=readout)
        return _saturated(stream + torch.floor(self.proj(readout)).double())

    def _read_out(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous() for x in (q, k, v))
        tables = AffinityTables(self.table, self.row_exponent)
        total, mass = integer_attention(q, k, v, tables, self.delay, self.compared_by)
        scaled = total.float() * self.powers[pow2_exponent(mass)].unsqueeze(-1)
        return self._floor(join_heads(scaled) * self.scale + self.shift, "readout")

    def _floor(self, pre: Tensor, point: Point) -> Tensor:
        return self.ranges[point].codes(torch.floor(pre))


_ATTENTION_POINTS: tuple[Point, ...] = ("attention_in", "q", "k", "v", "readout")


class FeedForwardExecutor(nn.Module):
    """The second half of a block: (B, N, D) stream -> stream."""

    def __init__(self, network: Network, index: int) -> None:
        super().__init__()
        block: Block = network.blocks[index]
        self.index = index
        self.input = PointCodes.of(network, "mlp_in", index)
        self.hidden = PointCodes.of(network, "mlp_hidden", index)
        self.norm = NormExecutor(block.mlp_norm, network.eps)
        self.fc1, self.fc2 = LayerExecutor(block.fc1), LayerExecutor(block.fc2)
        self.rise, self.fall = _constant(block.rise), _constant(block.fall)

    def forward(self, stream: Tensor, trace: Trace | None) -> Tensor:
        codes = self.input.codes(torch.floor(self.norm(stream)))
        pre = self.fc1(codes)
        level = torch.full_like(pre, self.hidden.low)
        for up, down in zip(self.rise, self.fall, strict=True):
            level += (pre >= up) | ((pre <= down) & (down > float(arithmetic.LOWEST)))
        hidden = self.hidden.codes(level)
        _note(trace, self.index, mlp_in=codes, mlp_hidden=hidden)
        return _saturated(stream + torch.floor(self.fc2(hidden)).double())


class NormExecutor(nn.Module):
    """fl(fl(u gain) + shift), u the standardised stream."""

    def __init__(self, norm: Norm, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain, self.shift = _constant(norm.gain), _constant(norm.shift)

    def forward(self, stream: Tensor) -> Tensor:
        return _standardised(stream, self.eps) * self.gain + self.shift


class LayerExecutor(nn.Module):
    """fl(fl(sum_i w_oi z_i scale_o) + shift_o); the sums are integers that float32 holds exactly."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.weight = _constant(layer.weight.astype(np.float32).T)
        self.scale, self.shift = _constant(layer.scale), _constant(layer.shift)

    def forward(self, codes: Tensor) -> Tensor:
        return (codes @ self.weight) * self.scale + self.shift


def _constant(array: Any) -> nn.Buffer:
    """A constant of a module, which moves with it and is not saved."""
    return nn.Buffer(torch.from_numpy(np.array(array, order="C")), persistent=False)


def _standardised(stream: Tensor, eps: float) -> Tensor:
    whole, width = stream.long(), stream.shape[-1]
    mean = _rounded_mean(whole, dim=-1, keepdim=True)
    centred, rest = whole - mean, whole.sum(dim=-1, keepdim=True) - width * mean
    squares = centred.square().sum(dim=-1, keepdim=True)
    variance = (squares.double() - rest.square().double() / width) / width
    return centred.float() * (1.0 / torch.sqrt(variance + eps)).float()


def _rounded_mean(stream: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """floor(mean + 1/2), in integers."""
    count = stream.shape[dim]
    return (2 * stream.long().sum(dim=dim, keepdim=keepdim) + count).div(2 * count, rounding_mode="floor")


def _saturated(stream: Tensor) -> Tensor:
    return stream.clamp(-arithmetic.STREAM_LIMIT, arithmetic.STREAM_LIMIT - 1)


def _note(trace: Trace | None, index: int, **codes: Tensor) -> None:
    if trace is not None:
        for point, values in codes.items():
            trace.note(index, point, as_integers(values))  # type: ignore[arg-type]
