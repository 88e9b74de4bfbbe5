"""Time attention on a GPU: ours, its composed forms in torch, and flash attention in bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.kernels import Task
from benchmarks.sizes import Size
from lapis.errors import LapisError
from lapis.ops.attention import eager, torch_native
from lapis.ops.row_scale.eager import log_affinity, scale_rows

# The allowed error of our FP32 results beside the composed form in float64.
TOLERANCE = 1e-4
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def gpu_tasks(size: Size, device: torch.device, compiled: bool = True) -> Iterator[Task]:
    """Attention with power-of-two rows at one size; without `compiled`, torch.compile is left out."""
    source = torch.Generator().manual_seed(0)
    shape = (size.batch, size.heads, size.tokens, size.channels)
    q, k, v = (torch.randint(0, size.window + 1, shape, generator=source).float().to(device) for _ in range(3))
    tau = torch.full((size.heads,), size.window * size.channels**0.5 / 3, device=device)
    grad = torch.randn(shape, generator=source).to(device)
    ways: dict[str, Attention] = {
        "lapis": lambda q, k, v, tau: torch_native.attention(q, k, v, tau, codes=(0, size.window)),
        "torch.cdist": eager.attention,
        "flash attention bf16": lambda q, k, v, tau: F.scaled_dot_product_attention(q, k, v),
    }
    if compiled:
        ways["torch.compile of the sum"] = torch.compile(_summed)

    def inputs(name: str, trained: bool) -> tuple[Tensor, ...]:
        kind = torch.bfloat16 if "bf16" in name else torch.float32
        return tuple(x.to(kind).requires_grad_(trained) for x in (q, k, v, tau))

    def forward(name: str) -> Callable[[], Any]:
        given = inputs(name, trained=False)
        return _finished(device, lambda: ways[name](*given))

    def both(name: str) -> Callable[[], Any]:
        given = inputs(name, trained=True)
        # Flash attention has no tau.
        leaves = given[: 3 if "flash" in name else 4]
        return _finished(device, lambda: torch.autograd.grad(ways[name](*given), leaves, grad.to(given[0].dtype)))

    def check() -> None:
        exact = [x.double().requires_grad_() for x in (q[:1], k[:1], v[:1], tau)]
        ours = [x[:1].clone().requires_grad_() for x in (q, k, v)] + [tau.clone().requires_grad_()]
        wanted, made = ways["torch.cdist"](*exact), ways["lapis"](*ours)
        found = torch.autograd.grad(made, ours, grad[:1])
        expected = torch.autograd.grad(wanted, exact, grad[:1].double())
        for one, other in zip((made, *found), (wanted, *expected), strict=True):
            if not bool((one - other).abs().max() <= TOLERANCE * other.abs().max().clamp_min(1e-9)):
                raise LapisError("attention on this device is wrong; please report it with `lapis info --check`")

    yield Task("attention forward", str(size), {name: forward(name) for name in ways}, check, {})
    yield Task("attention forward and backward", str(size), {name: both(name) for name in ways}, check, {})


def _summed(q: Tensor, k: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """Attention whose distance is written as a sum, for a compiler to fuse."""
    distance = (q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1)
    return scale_rows(log_affinity(distance, tau), "pow2") @ v


def _finished(device: torch.device, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, back when the device has done its work."""
    if device.type != "cuda":
        return call

    def wait() -> Any:
        made = call()
        torch.cuda.synchronize(device)
        return made

    return wait
