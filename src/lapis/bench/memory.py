"""The memory of attention in addition to its inputs and result, measured in a new process for each implementation.

`python -m lapis.bench.memory WAY BATCH HEADS TOKENS CHANNELS` is that process; it prints the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lapis.bench.processes import peak_memory_bytes, reset_peak_memory, run_module
from lapis.bench.sizes import Size
from lapis.errors import LapisError
from lapis.ops.attention import eager, torch_native

TAU = 30.0
FLOAT_BYTES = 4
# The broadcast way holds two arrays of B*H*N*N*C floats; it is left out if one of them were larger than this.
LARGEST_BROADCAST = 1e9


@dataclass(frozen=True)
class MemoryRow:
    """The peak memory, without inputs and result, of one way to compute attention at one size."""

    batch: int
    heads: int
    tokens: int
    channels: int
    way: str
    extra_mb: float


def broadcast(q: Tensor, k: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """Attention as its equation is written: B*H*N*N*C differences in memory."""
    distance = (q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1)
    return torch.softmax(-distance / tau.view(-1, 1, 1), dim=-1) @ v


def eager_exact(q: Tensor, k: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    return eager.attention(q, k, v, tau, "exact")


def fused_exact(q: Tensor, k: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    return torch_native.attention(q, k, v, tau, "exact")


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "broadcast": broadcast,
    "eager": eager_exact,
    "fused": fused_exact,
}


def peaks(sizes: Sequence[Size]) -> Iterator[MemoryRow]:
    """Every way at every size; broadcast only if it is not too large."""
    for size in sizes:
        differences = size.batch * size.heads * size.tokens**2 * size.channels * FLOAT_BYTES
        for way in WAYS:
            if way != "broadcast" or differences <= LARGEST_BROADCAST:
                yield peak(way, size)


def peak(way: str, size: Size) -> MemoryRow:
    """One way at one size, in its own process."""
    shape = (size.batch, size.heads, size.tokens, size.channels)
    try:
        printed = run_module("lapis.bench.memory", way, *map(str, shape))
    except LapisError as error:
        raise LapisError(f"attention ({way}) at {size} failed: {error}") from error
    return MemoryRow(*shape, way, int(printed) / 1e6)


def _extra_bytes(way: str, size: Size) -> int:
    """How far this process's peak memory rises during one call, less the result."""
    torch.set_num_threads(1)
    attention = WAYS[way]
    shape = (size.batch, size.heads, size.tokens, size.channels)
    tau = torch.full((size.heads,), TAU)
    with torch.no_grad():
        # A first call, because memory that is allocated only once must not count.
        small = torch.zeros(1, size.heads, 2, size.channels)
        attention(small, small, small, tau)
        q, k, v = torch.randint(0, size.window + 1, (3, *shape)).float()
        # Making the inputs needed memory too; that peak must not hide the memory of the call.
        reset_peak_memory()
        before = peak_memory_bytes()
        result = attention(q, k, v, tau)
        after = peak_memory_bytes()
    assert result.shape == shape
    return max(0, after - before - result.numel() * result.element_size())


if __name__ == "__main__":
    _batch, _heads, _tokens, _channels = map(int, sys.argv[2:])
    print(_extra_bytes(sys.argv[1], Size(_batch, _heads, _tokens, _channels)))
