"""A = exp(-D / tau) in torch."""

from __future__ import annotations

import torch
from torch import Tensor


def affinity(distance: Tensor, tau: Tensor) -> Tensor:
    """A = exp(-D / tau_h): distance (..., H, N, M), tau (H,) or a single value."""
    return torch.exp(log_affinity(distance, tau))


def log_affinity(distance: Tensor, tau: Tensor) -> Tensor:
    """ln A = -D / tau_h, the form in which no row can underflow."""
    return -distance / (tau.view(-1, 1, 1) if tau.ndim == 1 else tau)


def affinity_by_leak(distance: Tensor, tau: Tensor) -> Tensor:
    """u_{r+1} = beta u_r from u_0 = 1, run for D steps; distance (..., H, N, M) integers."""
    beta = torch.exp(-1 / tau)
    beta = beta.view(-1, 1, 1) if tau.ndim == 1 else beta
    membrane = torch.ones(distance.shape, dtype=beta.dtype, device=distance.device)
    for step in range(int(distance.max()) if distance.numel() else 0):
        membrane = torch.where(step < distance, beta * membrane, membrane)
    return membrane


def affinity_table(tau: Tensor, largest_distance: int) -> Tensor:
    """beta_h**r for r = 0..largest_distance: tau (H,) -> (H, D+1)."""
    return torch.exp(-torch.arange(largest_distance + 1, device=tau.device) / tau.view(-1, 1))


def affinity_by_table(distance: Tensor, table: Tensor) -> Tensor:
    """A = table[h][D]: distance (..., H, N, M) integers, table (H, D+1)."""
    head = torch.arange(table.shape[0], device=table.device).view(-1, 1, 1)
    return table[head, distance.long()]
