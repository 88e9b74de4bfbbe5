"""The count of differing codes as a torch operator over the native library; eager wherever that cannot run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis import native
from lapis.ops.hamming_distance import eager
from lapis.ops.l1_distance.custom import distance, distance_backward
from lapis.ops.shapes import check_pair
from lapis.ops.tensors import served_natively


def hamming_distance(q: Tensor, k: Tensor, levels: int) -> Tensor:
    """D_ij = sum_c [q_ic != k_jc] for integer-valued q and k in 0..levels-1, with the surrogate gradient of `eager`."""
    check_pair(q.shape, k.shape)
    if not served_natively(q, k):
        return eager.hamming_distance(q, k, levels)
    result: Tensor = torch.ops.lapis.hamming_distance(q, k)
    return result


torch.library.define("lapis::hamming_distance", "(Tensor q, Tensor k) -> Tensor")
torch.library.define("lapis::hamming_distance_backward", "(Tensor grad, Tensor q, Tensor k) -> (Tensor, Tensor)")


@torch.library.impl("lapis::hamming_distance", "CPU")
def _forward(q: Tensor, k: Tensor) -> Tensor:
    return distance(native.HAMMING, q, k)


@torch.library.impl("lapis::hamming_distance_backward", "CPU")
def _backward(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return distance_backward(native.HAMMING, grad, q, k)


def _forward_shape(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=torch.float32)


def _backward_shape(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    grads: tuple[Tensor, Tensor] = torch.ops.lapis.hamming_distance_backward(grad, *ctx.saved_tensors)
    return grads


torch.library.register_fake("lapis::hamming_distance", _forward_shape)
torch.library.register_fake("lapis::hamming_distance_backward", _backward_shape)
torch.library.register_autograd("lapis::hamming_distance", _differentiate, setup_context=_save)
