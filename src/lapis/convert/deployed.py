"""The deployed arithmetic on torch tensors: a trained network evaluated as it will run, on any device.

Training rounds where it is convenient and learns through it; what counts is the network that is deployed, so that is
what evaluation runs. Integers travel as floats that hold them exactly; every other operation is the one rounding that
`lapis.convert.arithmetic` states, in its order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lapis.codes import SQRT_HALF
from lapis.config import FLOAT_WEIGHTS
from lapis.convert import arithmetic, leak
from lapis.convert.from_model import from_model
from lapis.convert.network import Network, check_convertible
from lapis.errors import LapisError
from lapis.nn import LapisViT, is_calibrated
from lapis.nn.model import Watched
from lapis.ops.l1_distance.custom import l1_distance
from lapis.preprocess import Preprocess
from lapis.trace import Point, Trace


def as_deployed(model: LapisViT, preprocess: Preprocess) -> LapisViT | Deployed:
    """The network in the arithmetic of its deployed form; a network that has none, or only in floats, as it is."""
    try:
        check_convertible(model.config)
    except LapisError:
        return model
    if model.config.weight_bits == FLOAT_WEIGHTS or not is_calibrated(model):
        return model
    return Deployed(from_model(model, preprocess)).to(next(model.parameters()).device)


class Deployed(nn.Module):
    """normalised images (B, 3, S, S)  ->  logits (B, classes), equal to the integer model's in every bit."""

    mean: Tensor
    std: Tensor
    patch_weight: Tensor
    patch_unit: Tensor
    position: Tensor
    head_weight: Tensor
    head_bias: Tensor
    powers: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self._keep("mean", np.array(network.preprocess.mean)[:, None, None])
        self._keep("std", np.array(network.preprocess.std)[:, None, None])
        self._keep("patch_weight", network.patch_weight.T.astype(np.float64))
        self._keep("patch_unit", np.ldexp(1.0, -network.patch_shift.astype(np.int64)))
        self._keep("position", network.position.astype(np.float64))
        self._keep("head_weight", network.head_weight.T.astype(np.float64))
        self._keep("head_bias", network.head_bias.astype(np.float64))
        self._keep("powers", np.ldexp(np.float32(1), -np.arange(64)))
        for index, block in enumerate(network.blocks):
            for name, norm in (("attention", block.attention_norm), ("mlp", block.mlp_norm)):
                self._keep(f"{name}_gain_{index}", norm.gain)
                self._keep(f"{name}_shift_{index}", norm.shift)
            for name, layer in (("qkv", block.qkv), ("proj", block.proj), ("fc1", block.fc1), ("fc2", block.fc2)):
                self._keep(f"{name}_weight_{index}", layer.weight.astype(np.float32).T)
                self._keep(f"{name}_scale_{index}", layer.scale)
                self._keep(f"{name}_shift_{index}", layer.shift)
            row_exponent, table = leak.expand(*network.leaks[index])
            self._keep(f"row_exponent_{index}", row_exponent.astype(np.int64))
            self._keep(f"table_{index}", table.astype(np.float64))
            self._keep(f"rise_{index}", block.rise)
            self._keep(f"fall_{index}", block.fall)
            self._keep(f"readout_{index}", np.array([block.readout.scale, block.readout.shift]))
            delay = network.delays[index]
            if delay is not None:
                self._keep(f"delay_{index}", delay)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        return self._run(images, None)

    @torch.no_grad()
    def watch(self, images: Tensor) -> Watched:
        """Logits and the integer codes at every measuring point."""
        trace = Trace(self.config.window)
        return Watched(self._run(images, trace), trace)

    def _keep(self, name: str, array: Any) -> None:
        self.register_buffer(name, torch.from_numpy(np.array(array, order="C")), persistent=False)

    def _run(self, images: Tensor, trace: Trace | None) -> Tensor:
        with torch.autocast(images.device.type, enabled=False):
            stream = self._embed(images)
            for index in range(self.config.depth):
                stream = self._attention(index, stream, trace)
                stream = self._feed_forward(index, stream, trace)
            return self._classify(stream)

    def _embed(self, images: Tensor) -> Tensor:
        # The bytes that the normalised image was made from: they are 1/255 apart, float rounding some 1e-7.
        pixels = ((images.double() * self.std + self.mean) * 255).round()
        batch, grid, side = images.shape[0], self.config.grid, self.config.patch_size
        patches = pixels.view(batch, 3, grid, side, grid, side).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        tokens = torch.floor((patches @ self.patch_weight) * self.patch_unit + 0.5) + self.position[1:]
        first = self.position[:1].expand(batch, -1, -1)
        return _limited(torch.cat([first, tokens], dim=1))

    def _attention(self, index: int, stream: Tensor, trace: Trace | None) -> Tensor:
        codes = self._coded("attention", index, stream, "attention_in")
        q, k, v = self._layer("qkv", index, codes).chunk(3, dim=-1)
        q, k, v = self._floored(q, "q"), self._floored(k, "k"), self._floored(v, "v")
        readout = self._read_out(index, q, k, v)
        self._note(trace, index, attention_in=codes, q=q, k=k, v=v, readout=readout)
        return _limited(stream + torch.floor(self._layer("proj", index, readout)).double())

    def _feed_forward(self, index: int, stream: Tensor, trace: Trace | None) -> Tensor:
        codes = self._coded("mlp", index, stream, "mlp_in")
        pre = self._layer("fc1", index, codes)
        hidden = torch.full_like(pre, self.network.low("mlp_hidden"))
        for up, down in zip(self._of("rise", index), self._of("fall", index), strict=True):
            hidden += (pre >= up) | ((pre <= down) & (down > float(arithmetic.LOWEST)))
        self._note(trace, index, mlp_in=codes, mlp_hidden=hidden)
        return _limited(stream + torch.floor(self._layer("fc2", index, hidden)).double())

    def _read_out(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (self._split_heads(codes) for codes in (q, k, v))
        distance = l1_distance(q, k).long()
        if self.network.delays[index] is not None:
            distance += self._of("delay", index)
        table, row_exponent = self._of("table", index), self._of("row_exponent", index)
        heads, rows, size = table.shape
        head = torch.arange(heads, device=q.device)[:, None, None]
        row = row_exponent[head, distance.amin(dim=-1, keepdim=True)]
        affinity = table.flatten()[(head * rows + row) * size + distance]
        mantissa, exponent = torch.frexp(affinity.sum(dim=-1, keepdim=True))
        power = self.powers[exponent.long() - (mantissa < SQRT_HALF).long()]
        scaled = (affinity @ v.double()).float() * power
        scale, shift = self._of("readout", index)
        return self._floored(scaled.transpose(1, 2).flatten(2) * scale + shift, "readout")

    def _classify(self, stream: Tensor) -> Tensor:
        if self.config.mean_pooling:
            patches = stream.shape[1] - 1
            pooled = (2 * stream[:, 1:].sum(dim=1) + patches).long().div(2 * patches, rounding_mode="floor")
        else:
            pooled = stream[:, 0]
        unit = self._standardised(pooled.double()) * float(1 << arithmetic.POOLED_BITS)
        token = torch.floor(unit + 0.5).clamp(int(arithmetic.INT16.min), int(arithmetic.INT16.max))
        scores = token.double() @ self.head_weight + self.head_bias
        return torch.ldexp(scores, torch.tensor(-(arithmetic.POOLED_BITS + self.network.head_exponent))).float()

    def _coded(self, norm: str, index: int, stream: Tensor, point: Point) -> Tensor:
        pre = self._standardised(stream) * self._of(f"{norm}_gain", index) + self._of(f"{norm}_shift", index)
        return self._floored(pre, point)

    def _standardised(self, stream: Tensor) -> Tensor:
        width = stream.shape[-1]
        whole = stream.long()
        total = whole.sum(dim=-1, keepdim=True)
        mean = (2 * total + width).div(2 * width, rounding_mode="floor")
        centred, rest = whole - mean, total - width * mean
        squares = centred.square().sum(dim=-1, keepdim=True)
        variance = (squares.double() - rest.square().double() / width) / width
        rstd = (1.0 / torch.sqrt(variance + self.network.eps)).float()
        return centred.float() * rstd

    def _layer(self, name: str, index: int, codes: Tensor) -> Tensor:
        total = codes @ self._of(f"{name}_weight", index)
        return total * self._of(f"{name}_scale", index) + self._of(f"{name}_shift", index)

    def _floored(self, pre: Tensor, point: Point) -> Tensor:
        return torch.floor(pre).clamp(self.network.low(point), self.config.window)

    def _split_heads(self, codes: Tensor) -> Tensor:
        return codes.view(*codes.shape[:2], self.config.heads, -1).transpose(1, 2).contiguous()

    def _of(self, name: str, index: int) -> Tensor:
        return self.get_buffer(f"{name}_{index}")

    def _note(self, trace: Trace | None, index: int, **codes: Tensor) -> None:
        if trace is not None:
            for point, values in codes.items():
                trace.note(index, point, values.to(torch.int8).cpu().numpy())  # type: ignore[arg-type]


def _limited(stream: Tensor) -> Tensor:
    return stream.clamp(-arithmetic.STREAM_LIMIT, arithmetic.STREAM_LIMIT - 1)
