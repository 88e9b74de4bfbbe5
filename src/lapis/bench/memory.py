"""What attention needs beside its inputs and its result, measured in a fresh process for each way to compute it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lapis.bench.contenders import peak_memory_mb
from lapis.errors import LapisError
from lapis.ops.attention import eager, torch_native

# Eight images of a base model.
PAPER = (8, 12, 197, 64)
# One image and head, ever more tokens: what is quadratic in tokens shows.
GROWTH = tuple((1, 1, tokens, 64) for tokens in (512, 1024, 2048, 4096))
WINDOW = 15


@dataclass(frozen=True)
class Peak:
    """The largest memory beyond inputs and result, in bytes, of one way at one shape (B, H, N, C)."""

    way: str
    shape: tuple[int, int, int, int]
    extra_bytes: int


def broadcast(q: Tensor, k: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """Attention as it is written on paper: B*H*N*N*C differences in memory."""
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


def measure(way: str, shape: tuple[int, int, int, int]) -> Peak:
    """Run one way in a process of its own and read how far its memory rose."""
    words = [sys.executable, "-m", "lapis.bench.memory", way, *map(str, shape)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LapisError(f"attention ({way}) at {shape} failed: {done.stderr.strip().splitlines()[-1]}")
    return Peak(way, shape, int(done.stdout))


def _extra(way: str, shape: tuple[int, int, int, int]) -> int:
    """The rise of this process's largest memory during one call, less the result."""
    torch.set_num_threads(1)
    batch, heads, tokens, channels = shape
    tau = torch.full((heads,), 30.0)
    with torch.no_grad():
        small = torch.zeros(1, heads, 2, channels)
        WAYS[way](small, small, small, tau)  # what is loaded once is not the call's own
        q, k, v = torch.randint(0, WINDOW + 1, (3, *shape)).float()
        # From here on the peak counts anew: what making the inputs took does not hide what the call takes.
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_memory_mb()
        result = WAYS[way](q, k, v, tau)
        after = peak_memory_mb()
    assert result.shape == (batch, heads, tokens, channels)
    return max(0, round((after - before) * 1e6) - result.numel() * result.element_size())


if __name__ == "__main__":
    _way, *_shape = sys.argv[1:]
    _b, _h, _n, _c = map(int, _shape)
    print(_extra(_way, (_b, _h, _n, _c)))
