"""Steps with a straight-through gradient: the value of the step, the slope of what it stands for."""

from __future__ import annotations

import torch
from torch import Tensor


def straight_through(step: Tensor, smooth: Tensor) -> Tensor:
    """The value of `step` with the gradient of `smooth`."""
    return step.detach() + (smooth - smooth.detach())


def signs(x: Tensor) -> Tensor:
    """+1 where x > 0, else -1; d/dx = 1 where |x| <= 1, else 0."""
    return straight_through(torch.where(x > 0, 1.0, -1.0).to(x.dtype), x.clamp(-1, 1))


def gate(total: Tensor, threshold: Tensor) -> Tensor:
    """[total >= threshold] as 0 or 1, with the slope of total / (2 threshold) between 0 and 1.

    The gradient of the threshold is multiplied by 1/sqrt(n), n the gates of one image, as for a quantizer's step.
    """
    share = total[0].numel() ** -0.5
    ratio = total / (2 * straight_through(threshold.detach(), share * threshold))
    inside = (ratio.detach() > 0) & (ratio.detach() < 1)
    return straight_through((ratio >= 0.5).to(total.dtype), ratio * inside)


def thermometer(codes: Tensor, window: int) -> Tensor:
    """The rate train [z >= n], n = 1..T, of codes z >= 0: (...) -> (T, ...).

    d/dz = 1/2 for the two thresholds next to z, n = z and n = z + 1, else 0, so the sum over n has the slope 1 between
    the ends 0 and T, and 1/2 at them.
    """
    steps = torch.arange(1, window + 1, device=codes.device).view(-1, *[1] * codes.ndim)
    bits = (codes >= steps).to(codes.dtype)
    near = (codes.detach() == steps) | (codes.detach() + 1 == steps)
    return straight_through(bits, 0.5 * codes * near)


def on_and_off(codes: Tensor, signed: bool) -> Tensor:
    """Signed codes as an ON and an OFF neuron each, (..., C) -> (..., 2 C); unsigned ones as they are."""
    return torch.cat([codes.clamp_min(0), (-codes).clamp_min(0)], dim=-1) if signed else codes
