"""The spiking network in C: the operations of `lapis.deploy.simulate` by the native library, spike for spike.

Tests hold every operation and whole networks equal to the numpy simulator, which is the definition. Networks with float
weights stay there: their sums depend on the order in which spikes are added.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.config import AFFINITY_BITS
from lapis.deploy.arithmetic import Array, Codes, Int32, Int64
from lapis.deploy.network import Layer, Network
from lapis.deploy.noise import Noise
from lapis.deploy.simulate import Crossing, Simulator, Spikes
from lapis.energy.counts import Operator
from lapis.errors import LapisError


def fast_simulator(network: Network, threads: int = 1, noise: Noise | None = None) -> Simulator:
    """The simulator in C where the library is there, else the one in numpy."""
    if native.available():
        return NativeSimulator(network, threads, noise=noise)
    return Simulator(network, noise=noise)


def fire(crossing: Crossing, window: int, signed: bool, min_code: int = 1, threads: int = 1) -> tuple[Spikes, Codes]:
    """One spike at the first step n <= T - z0 whose level T - n is reached, and the codes that the spikes stand for."""
    rows, neurons = crossing.values.shape
    per_row, sets, levels = crossing.rise.shape
    if per_row not in (1, rows) or levels != window - crossing.low or signed != (crossing.low < 0):
        raise LapisError(f"thresholds {crossing.rise.shape} do not fit {rows} rows and codes {crossing.low}..{window}")
    values, rise = _contiguous(crossing.values, np.float64), _by_level(crossing.rise)
    fall = None if crossing.fall is None else _by_level(crossing.fall)
    spikes = np.empty((window - min_code + 1, rows, 2 * neurons if signed else neurons), dtype=np.bool_)
    codes = np.empty((rows, neurons), dtype=np.int8)
    native.check(
        native.library().lapis_spikes_fire(
            values.ctypes.data, rows, neurons, rise.ctypes.data, None if fall is None else fall.ctypes.data,
            per_row > 1, sets, crossing.low, window, min_code, spikes.ctypes.data, codes.ctypes.data, threads,
        )
    )  # fmt: skip
    return spikes, codes


def integrate(spikes: Spikes, weight: Codes, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """I += w on a spike, V += I at every step: weight (inputs, O) of int8; OFF neurons, behind the inputs, subtract it.

    spikes (T - z0 + 1, targets, inputs or 2 inputs)  ->  V (targets, O), synapses crossed.
    """
    train, weight = _contiguous(spikes, np.bool_), _contiguous(weight, np.int8)
    steps, targets, neurons = train.shape
    voltage, crossed = np.empty((targets, weight.shape[1]), dtype=np.int32), ctypes.c_int64()
    native.check(
        native.library().lapis_spikes_integrate(
            train.ctypes.data, steps, targets, neurons, weight.ctypes.data, *weight.shape, min_code,
            voltage.ctypes.data, ctypes.byref(crossed), threads,
        )
    )  # fmt: skip
    return voltage, crossed.value


def relate(q: Spikes, k: Spikes, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """D_ij = sum_c |t^q_ic - t^k_jc| by counters between two spikes; (T - z0 + 1, H, N, C) each -> (H, N, N)."""
    q, k = _contiguous(q, np.bool_), _contiguous(k, np.bool_)
    steps, heads, rows, neurons = q.shape
    if (*k.shape[:2], k.shape[3]) != (steps, heads, neurons):
        raise LapisError(f"query spikes of shape {q.shape} cannot meet key spikes of shape {k.shape}")
    distance, crossed = np.empty((heads, rows, k.shape[2]), dtype=np.int32), ctypes.c_int64()
    native.check(
        native.library().lapis_spikes_relate(
            q.ctypes.data, k.ctypes.data, steps, heads, rows, k.shape[2], neurons, min_code, distance.ctypes.data,
            ctypes.byref(crossed), threads,
        )
    )  # fmt: skip
    return distance, crossed.value


def leak_affinities(
    distance: Array, mantissa: Array, exponent: Int64, bits: int = AFFINITY_BITS
) -> tuple[Int32, Int64, int]:
    """Every pair's membrane after its own number of leak steps, the row sums, and the number of steps.

    distance (H, N, M); mantissa, exponent (H, S): the membranes of each head after 0..S-1 steps.
    """
    steps = int(distance.max())
    distance, mantissa = _contiguous(distance, np.int32), _contiguous(mantissa, np.uint32)
    exponent = _contiguous(exponent, np.int64)
    affinity, mass = np.empty_like(distance), np.empty(distance.shape[:2], dtype=np.int64)
    native.check(
        native.library().lapis_spikes_leak(
            distance.ctypes.data, *distance.shape, mantissa.ctypes.data, exponent.ctypes.data, mantissa.shape[1],
            bits, affinity.ctypes.data, mass.ctypes.data,
        )
    )  # fmt: skip
    return affinity, mass, steps


def mix(spikes: Spikes, affinity: Array, signed: bool, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """Value spikes through affinities: (T - z0 + 1, H, M, C or 2 C), (H, N, M) -> V (H, C, N), synapses crossed."""
    train, synapses = _contiguous(spikes, np.bool_), _contiguous(affinity, np.int32)
    steps, heads, keys, neurons = train.shape
    channels, rows = neurons // 2 if signed else neurons, synapses.shape[1]
    voltage, crossed = np.empty((heads, channels, rows), dtype=np.int32), ctypes.c_int64()
    native.check(
        native.library().lapis_spikes_mix(
            train.ctypes.data, steps, heads, keys, neurons, synapses.ctypes.data, rows, channels, min_code,
            voltage.ctypes.data, ctypes.byref(crossed), threads,
        )
    )  # fmt: skip
    return voltage, crossed.value


@dataclass(frozen=True)
class NativeSimulator(Simulator):
    """The simulator with its operations in C, on some threads; the answers, codes and events are the same."""

    threads: int = 1

    @cached_property
    def _synapses(self) -> dict[tuple[int, Operator], Codes]:
        return {}

    @cached_property
    def _membranes(self) -> dict[int, tuple[Array, Int64]]:
        return {}

    def _fire(self, crossing: Crossing, signed: bool, min_code: int) -> tuple[Spikes, Codes]:
        return fire(crossing, self.network.config.window, signed, min_code, self.threads)

    def _integrate(
        self, key: tuple[int, Operator], layer: Layer, spikes: Spikes, signed: bool, min_code: int
    ) -> tuple[Array, int]:
        if key not in self._synapses:
            self._synapses[key] = _contiguous(layer.weight.T, np.int8)
        return integrate(spikes, self._synapses[key], min_code, self.threads)

    def _relate(self, q: Spikes, k: Spikes, min_code: int) -> tuple[Array, int]:
        return relate(q, k, min_code, self.threads)

    def _leak(self, index: int, distance: Array) -> tuple[Array, Int64, int]:
        if index not in self._membranes:
            walked = islice(self.network.blocks[index].membranes(), self.network.distances(index))
            us, es = (np.stack(parts, axis=1) for parts in zip(*walked, strict=True))
            self._membranes[index] = us.astype(np.uint32), es
        return leak_affinities(distance, *self._membranes[index], self.network.config.affinity_bits)

    def _mix(self, spikes: Spikes, affinity: Array, signed: bool, min_code: int) -> tuple[Array, int]:
        return mix(spikes, affinity, signed, min_code, self.threads)


def _by_level(thresholds: Array) -> Array:
    """(rows or 1, sets, levels) -> (rows or 1, levels, sets): neurons that are asked together lie together."""
    return _contiguous(thresholds.transpose(0, 2, 1), np.float64)


def _contiguous(array: npt.NDArray[Any], kind: type) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=kind)
