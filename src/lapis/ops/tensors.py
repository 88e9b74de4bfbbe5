"""What the torch custom operators share: when the native library serves a call, and tensors as it wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import native

native.share_threads()

# Compilers take the answer at the time they trace: the library does not come and go.
library_available = torch.compiler.assume_constant_result(native.available)


def served_natively(*tensors: Tensor) -> bool:
    """Whether the library runs on these: on the CPU, in at most single precision (it computes in float32)."""
    return all(t.device.type == "cpu" and t.dtype != torch.float64 for t in tensors) and library_available()


def threads() -> int:
    """The caller's budget: what torch itself would use."""
    return torch.get_num_threads()


def round_half_up(x: Tensor) -> Tensor:
    """floor(x + 1/2) in the precision of x: the project's one rounding rule, on tensors."""
    return torch.floor(x + 0.5)


def silence(codes: Tensor, min_code: int) -> Tensor:
    """z where |z| >= min_code, else 0: `lapis.codes.silence` on tensors, in place where there is something to do."""
    return codes if min_code <= 1 else codes.masked_fill_(codes.abs() < min_code, 0.0)


def as_kernel_tensor(x: Tensor) -> Tensor:
    """(..., N, C) as float32 (B, H, N, C) with contiguous channels; a view wherever the strides allow."""
    x = x.detach().float()
    if x.dim() != 4:
        x = x.reshape(-1, 1, x.shape[-2], x.shape[-1]) if x.numel() else x.new_empty(0, 1, x.shape[-2], x.shape[-1])
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def record(q: Tensor, k: Tensor, relation: int) -> native.Pairs:
    """Sizes and strides of float32 codes for a kernel."""
    return native.pairs(q.shape, k.shape[2], q.stride()[:3], k.stride()[:3], native.CODES_F32, relation)
