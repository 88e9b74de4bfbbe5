"""The memory of attention in addition to its inputs and result, measured in a new process for each implementation.

    python -m benchmarks.memory --size 1,1,2048,64

`python -m benchmarks.memory measure WAY BATCH HEADS TOKENS CHANNELS` is the process; it prints the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from torch import Tensor

from benchmarks.common import Several, deliver, machine, main, output_options, require_kernels
from benchmarks.sizes import Size
from benchmarks.workers import peak_memory_bytes, run_module
from lapis.errors import LapisError
from lapis.ops.attention import eager, torch_native

TAU = 30.0
FLOAT_BYTES = 4
# The broadcast way holds two arrays of B*H*N*N*C floats; it is left out if one of them were larger than this.
LARGEST_BROADCAST = 1e9
# Eight images of a base model; then one image and one head with more and more tokens, to show what grows quadratically.
SIZES = (Size(8, 12, 197, 64), *(Size(1, 1, tokens, 64) for tokens in (512, 1024, 2048, 4096)))
# Written to clear_refs, it makes the kernel reset the peak.
CLEAR_REFS, RESET_PEAK = Path("/proc/self/clear_refs"), "5"


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
        printed = run_module("benchmarks.memory", "measure", way, *map(str, shape))
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
        CLEAR_REFS.write_text(RESET_PEAK)
        before = peak_memory_bytes()
        result = attention(q, k, v, tau)
        after = peak_memory_bytes()
    assert result.shape == shape
    return max(0, after - before - result.numel() * result.element_size())


@click.command()
@click.option(
    "--size", "sizes", type=Several(click.IntRange(1)), multiple=True, metavar="B,H,N,C",
    help="Images, heads, tokens, channels; may be repeated. Default: 8,12,197,64, and 1,1,N,64 for N from 512 to 4096.",
)  # fmt: skip
@output_options
def command(sizes: tuple[tuple[int, ...], ...], as_json: bool, out: Path | None) -> None:
    """Measure the memory that attention needs beside inputs and result, in three ways, each in its own process.

    broadcast holds a difference for each pair and channel (left out above 2 GB), eager is plain torch, fused is ours.

    \b
    Example:
      python -m benchmarks.memory --size 1,1,2048,64
    """
    require_kernels()
    if any(len(size) != 4 for size in sizes):
        raise LapisError("--size takes four numbers, images, heads, tokens, channels, as 1,1,2048,64")
    deliver("memory", machine(), list(peaks([Size(*size) for size in sizes] or SIZES)), as_json, out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        _batch, _heads, _tokens, _channels = map(int, sys.argv[3:])
        print(_extra_bytes(sys.argv[2], Size(_batch, _heads, _tokens, _channels)))
    else:
        sys.exit(main(command))
