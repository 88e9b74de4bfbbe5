"""A = exp(-D / tau): as an exponential, as a leaking membrane, and as a table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.codes import check_tau
from lapis.errors import LapisError

Float = npt.NDArray[np.float64]


def affinity(distance: npt.ArrayLike, tau: npt.ArrayLike) -> Float:
    """A = exp(-D / tau_h), in (0, 1].

    distance (..., H, N, M) >= 0 with tau (H,), or any shape with a single tau.
    """
    d = np.asarray(distance, dtype=np.float64)
    if d.size and not d.min() >= 0:  # also refuses NaN
        raise LapisError(f"a distance of {d.min()} was seen; distances are nonnegative numbers")
    return np.exp(-d / _per_head(tau, d.ndim))


def affinity_by_leak(distance: npt.ArrayLike, tau: float) -> Float:
    """u_{r+1} = beta u_r from u_0 = 1, run for D steps; beta = exp(-1/tau). A = u_D.

    distance (...), nonnegative integers. Every membrane leaks until its own time is up.
    """
    remaining = _integers(distance)
    beta = float(np.exp(-1.0 / check_tau(tau)))
    membrane = np.ones(remaining.shape)
    for step in range(int(remaining.max(initial=0))):
        membrane = np.where(step < remaining, beta * membrane, membrane)
    return membrane


def affinity_table(tau: npt.ArrayLike, largest_distance: int) -> Float:
    """beta_h**r for r = 0..largest_distance: every affinity that a head can produce, tau (H,) -> (H, D+1)."""
    return np.exp(-np.arange(largest_distance + 1) / np.atleast_1d(check_tau(tau))[:, None])


def affinity_by_table(distance: npt.ArrayLike, table: Float) -> Float:
    """A = table[h][D]: distance (..., H, N, M) integers, table (H, D+1)."""
    d = _integers(distance)
    if d.size and int(d.max()) >= table.shape[1]:
        raise LapisError(f"a distance of {int(d.max())} is outside the table, which ends at {table.shape[1] - 1}")
    head = np.arange(table.shape[0])[:, None, None]
    return np.asarray(table[head, d])


def _per_head(tau: npt.ArrayLike, ndim: int) -> Float:
    checked = check_tau(tau)
    return checked.reshape(-1, 1, 1) if checked.ndim == 1 and ndim >= 3 else checked


def _integers(distance: npt.ArrayLike) -> npt.NDArray[np.int64]:
    d = np.asarray(distance)
    if not np.issubdtype(d.dtype, np.integer):
        raise LapisError(f"distances of dtype {d.dtype} were given; a leak and a table run on integer distances")
    if d.size and int(d.min()) < 0:
        raise LapisError(f"a distance of {int(d.min())} was seen; distances are nonnegative")
    return d.astype(np.int64)
