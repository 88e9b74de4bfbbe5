"""Laplacian attention by Triton's kernels, forward and backward: launches and the arrays around them.

The operator `torch.ops.lapis.attention` calls these two functions for tensors on a GPU. Codes are packed four to a word
first; the distance, the exponential and the row scale are in float32. Backward computes every tile again from two
numbers per row. It stores dS for a few samples at a time, at most `MOST_SCRATCH` bytes unless one sample needs more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from lapis.config import RowScale
from lapis.ops.attention import triton_kernels as kernels
from lapis.ops.gpu.choice import Card, card_of_device, levels_by_thermometer

LOG2_E = 1 / math.log(2)
# Rows of packed codes are padded to the largest tile.
PADDING = 64
# dS of one launch; small enough to stay in the second-level cache of a large card.
MOST_SCRATCH = 32 << 20
# What all launches have in common: no copies in flight, which would take shared memory from other programs.
LAUNCH: dict[str, Any] = {"num_stages": 1, "enable_fp_fusion": True}


class Packed(NamedTuple):
    """Codes as bytes: words (B H, C/4, N padded) int32, sums of the bytes (B H, N padded) int32."""

    words: Tensor
    sums: Tensor

    @property
    def padded(self) -> int:
        return self.words.shape[2]


class Tile(NamedTuple):
    """Queries and keys of the tile that one program works on, and the warps that it has."""

    queries: int
    keys: int
    warps: int


def forward_tile(channels: int, card: Card) -> Tile:
    """As large as the registers allow; the accumulator has a row of channels for each query."""
    return Tile(32, 32, _warps(channels, card))


def backward_tile(channels: int, card: Card) -> Tile:
    """Half as many queries: backward has two more products of its tile."""
    return Tile(16, 32, _warps(channels, card))


def _warps(channels: int, card: Card) -> int:
    return 4 if channels <= 64 else 256 // card.lanes


def sign_rows(channels: int) -> int:
    """Rows of one program that sums signs."""
    return 64 if channels <= 64 else 32


class Inputs(NamedTuple):
    """The arguments of one call: q, k, v (B, H, N, C) with contiguous channels, tau (H,), delay (H, N, M) or None.

    `codes` is the range of q and k where it is known.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    tau: Tensor
    delay: Tensor | None
    row_scale: RowScale
    codes: tuple[int, int] | None


def attention(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Y (B, H, N, C), and (3, B, H, N): nearest distance, factor and mass of each row, for backward; float32."""
    q, v, device = inputs.q, inputs.v, inputs.q.device
    batch, heads, n, channels = q.shape
    # (B, N, H, C) in memory: what follows an attention joins the heads, which is then free.
    y = torch.empty(batch, n, heads, channels, device=device).transpose(1, 2)
    rows = torch.empty(3, batch, heads, n, device=device)
    if not y.numel():
        return y, rows
    shared = _Shared.of(inputs)
    tile = forward_tile(channels, card_of_device(device))
    grid = (triton.cdiv(n, tile.queries) * batch * heads,)
    strides = (*v.stride()[:3], *y.stride()[:3])
    constants = shared.constants(tile, inputs.codes) | {"POW2": inputs.row_scale == "pow2"}
    kernels.forward[grid](*shared.pointers(0, batch), y, *rows, *shared.sizes, *strides, **constants, **LAUNCH)
    return y, rows


def attention_backward(grad: Tensor, inputs: Inputs, y: Tensor, rows: Tensor) -> AttentionGradients:
    """Gradients from dY (B, H, N, C) and what `attention` returned; float32."""
    q, k, v, tau, delay = inputs.q, inputs.k, inputs.v, inputs.tau, inputs.delay
    batch, heads, n, channels = q.shape
    m = k.shape[2]
    dq, dk, dv = (torch.empty(x.shape, device=x.device) for x in (q, k, v))
    rates = 1 / tau.detach().float()
    ddelay = None if delay is None else torch.zeros(heads, n, m, device=q.device)
    if not y.numel():
        return AttentionGradients(dq.zero_(), dk.zero_(), dv.zero_(), torch.zeros_like(rates), ddelay)
    grad = grad.float() if grad.stride(-1) == 1 else grad.float().contiguous()
    deltas = (grad * y).sum(-1) / rows[2]
    shared, tile = _Shared.of(inputs), backward_tile(channels, card_of_device(q.device))
    # Thermometers and the other products of backward together need more registers than there are.
    constants = shared.constants(tile, None)
    tiles = triton.cdiv(m, tile.keys)
    moments = torch.empty(batch, heads, tiles, device=q.device)
    samples = max(1, min(batch, MOST_SCRATCH // (4 * heads * n * m)))
    scratch = torch.empty(samples, heads, n, m, device=q.device)
    for first in range(0, batch, samples):
        part = slice(first, min(batch, first + samples))
        ds = scratch[: part.stop - part.start]
        grid = (tiles * len(ds) * heads,)
        kernels.backward_scores[grid](
            *shared.pointers(part.start, part.stop), grad[part], rows[0, part], rows[1, part], deltas[part],
            ds, dv[part], moments[part], *shared.sizes, *v.stride()[:3], *grad.stride()[:3], **constants, **LAUNCH,
        )  # fmt: skip
        shared.sum_signs(ds, rates, part, dq, of_queries=True)
        shared.sum_signs(ds, rates, part, dk, of_queries=False)
        if ddelay is not None:
            ddelay.sub_(ds.sum(0) * rates.view(-1, 1, 1))
    dtau = moments.sum((0, 2), dtype=torch.float64).float() * rates.square()
    return AttentionGradients(dq, dk, dv, dtau, ddelay)


class AttentionGradients(NamedTuple):
    """Of q, k, v (contiguous), tau (H,) and delay (H, N, M) where there is one."""

    q: Tensor
    k: Tensor
    v: Tensor
    tau: Tensor
    delay: Tensor | None


class _Shared(NamedTuple):
    """What forward and backward hand to their kernels: packed codes, delays as integers, slopes, sizes."""

    inputs: Inputs
    q: Packed
    k: Packed
    start: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, inputs: Inputs) -> _Shared:
        q, k = pack_codes(inputs.q), pack_codes(inputs.k)
        slopes = LOG2_E / inputs.tau.detach().double()
        return cls(inputs, q, k, _start(inputs.delay, inputs.q.shape[1], q.padded, k.padded, inputs.q.device), slopes)

    def pointers(self, first: int, end: int) -> tuple[Tensor, ...]:
        """Of the samples from `first` to before `end`."""
        heads = self.inputs.q.shape[1]
        pairs = slice(first * heads, end * heads)
        codes = (self.q.words[pairs], self.k.words[pairs], self.q.sums[pairs], self.k.sums[pairs])
        return *codes, self.start, self.inputs.v[first:end], self.slopes

    @property
    def sizes(self) -> tuple[int, ...]:
        (_, heads, n, _), m = self.inputs.q.shape, self.inputs.k.shape[2]
        delay_strides = self.start.stride()[:2] if self.start.dim() == 3 else (0, 0)
        return n, m, heads, self.q.padded, self.k.padded, *delay_strides

    def constants(self, tile: Tile, codes: tuple[int, int] | None) -> dict[str, Any]:
        """Of a kernel that finds distances; by thermometers, if `codes` is their range and the card is fast at it."""
        device, channels = self.inputs.q.device, self.inputs.q.shape[-1]
        return {
            "C": channels,
            "CP": padded_channels(channels),
            "BM": tile.queries,
            "BN": tile.keys,
            "FIRST": kernels.SHIFT.value + 1 + (0 if codes is None else codes[0]),
            "LEVELS": 0 if codes is None else levels_by_thermometer(device, codes[1] - codes[0]),
            "WORDS": card_of_device(device).words,
            "DOT": card_of_device(device).dot,
            "num_warps": tile.warps,
        }

    def sum_signs(self, ds: Tensor, rates: Tensor, part: slice, out: Tensor, of_queries: bool) -> None:
        """dq or dk of some samples, into `out`."""
        heads, n, m = ds.shape[1:]
        pairs = slice(part.start * heads, part.stop * heads)
        own, other = (self.q, self.k) if of_queries else (self.k, self.q)
        sizes, strides = ((n, m), (m, 1)) if of_queries else ((m, n), (1, m))
        channels, device = out.shape[-1], out.device
        block = sign_rows(channels)
        kernels.sum_signs[(triton.cdiv(sizes[0], block) * len(ds) * heads,)](
            ds, own.words[pairs], other.words[pairs], out[part], rates, *sizes, heads, *strides,
            own.padded, other.padded, C=channels, CP=padded_channels(channels), BX=block, UNROLL=4,
            WORDS=card_of_device(device).words, num_warps=4, **LAUNCH,
        )  # fmt: skip


def pack_codes(codes: Tensor) -> Packed:
    """Codes (B, H, N, C) of -64..191, integer-valued floats, as bytes."""
    batch, heads, n, channels = codes.shape
    padded, count = -(-n // PADDING) * PADDING, -(-channels // 4)
    words = torch.empty(batch * heads, count, padded, dtype=torch.int32, device=codes.device)
    sums = torch.empty(batch * heads, padded, dtype=torch.int32, device=codes.device)
    kernels.pack_codes[(batch * heads * (padded // PADDING),)](
        codes.detach(), words, sums, n, heads, *codes.stride()[:3], padded,
        C=channels, WP=triton.next_power_of_2(count), BM=PADDING, num_warps=4, **LAUNCH,
    )  # fmt: skip
    return Packed(words, sums)


def padded_channels(channels: int) -> int:
    """A power of two that a matrix product of bytes can take."""
    return max(32, int(triton.next_power_of_2(channels)))


def _start(delay: Tensor | None, heads: int, rows: int, keys: int, device: torch.device) -> Tensor:
    """Delays as int32 (H, N padded, M padded), or one row of zeros."""
    if delay is None:
        return torch.zeros(keys, dtype=torch.int32, device=device)
    start = torch.zeros(heads, rows, keys, dtype=torch.int32, device=device)
    start[:, : delay.shape[1], : delay.shape[2]] = delay.detach()
    return start
