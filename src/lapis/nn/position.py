"""Relative position: one bias per head and offset, which Lapis stores as an integer delay."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.ops.tensors import round_half_up
from lapis.positions import offset_count, relative_offsets


class RelativePosition(nn.Module):
    """b[h, i, j] by the offset between the patches i and j of a grid, class token first."""

    index: Tensor

    def __init__(self, grid: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(offset_count(grid), heads))
        self.register_buffer("index", offsets(grid), persistent=False)

    def bias(self) -> Tensor:
        """b (H, N, N), added to the logits of a dot product."""
        return self.table[self.index].permute(2, 0, 1)

    def steps(self, tau: Tensor) -> Tensor:
        """round(tau_h (b_max - b)) for every row of the table: leak steps that put exp(b - b_max) into the membrane.

        Integer-valued, at least 0; the backward pass ignores the rounding (straight-through).
        """
        steps = tau * (self.table.amax(dim=0) - self.table)
        return steps + (round_half_up(steps) - steps).detach()

    def delay(self, tau: Tensor) -> Tensor:
        """The leak steps of every pair, (H, N, N)."""
        return self.steps(tau)[self.index].permute(2, 0, 1)


def offsets(grid: int) -> Tensor:
    """The row of the table for every pair of tokens: (N, N) of integers, N = grid**2 + 1."""
    return torch.from_numpy(relative_offsets(grid))
