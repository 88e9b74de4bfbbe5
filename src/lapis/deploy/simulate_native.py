"""The spiking network in C: the operations of `lapis.deploy.simulate` by the native library, spike for spike.

Tests hold every operation and whole networks equal to the numpy simulator, which is the definition. Networks with float
weights stay there: their sums depend on the order in which spikes are added.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis import native
from lapis.config import AFFINITY_BITS
from lapis.deploy.arithmetic import Array, Codes, Int32, Int64
from lapis.deploy.network import Layer, Network
from lapis.deploy.noise import Noise
from lapis.deploy.simulate import Crossing, Simulator, Spikes
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
    sizes = (per_row > 1, sets, crossing.low, window, min_code)
    native.call("lapis_spikes_fire", values, rows, neurons, rise, fall, *sizes, spikes, codes, threads)
    return spikes, codes


def integrate(spikes: Spikes, weight: Codes, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """I += w on a spike, V += I at every step: weight (inputs, O) of int8; OFF neurons, behind the inputs, subtract it.

    spikes (T - z0 + 1, targets, inputs or 2 inputs)  ->  V (targets, O), synapses crossed.
    """
    train, weight = _contiguous(spikes, np.bool_), _contiguous(weight, np.int8)
    voltage, crossed = np.empty((train.shape[1], weight.shape[1]), dtype=np.int32), ctypes.c_int64()
    inputs = (train, *train.shape, weight, *weight.shape)
    native.call("lapis_spikes_integrate", *inputs, min_code, voltage, ctypes.byref(crossed), threads)
    return voltage, crossed.value


def relate(q: Spikes, k: Spikes, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """D_ij = sum_c |t^q_ic - t^k_jc| by counters between two spikes; (T - z0 + 1, H, N, C) each -> (H, N, N)."""
    q, k = _contiguous(q, np.bool_), _contiguous(k, np.bool_)
    steps, heads, rows, neurons = q.shape
    if (*k.shape[:2], k.shape[3]) != (steps, heads, neurons):
        raise LapisError(f"query spikes of shape {q.shape} cannot be compared with key spikes of shape {k.shape}")
    distance, crossed = np.empty((heads, rows, k.shape[2]), dtype=np.int32), ctypes.c_int64()
    sizes = (steps, heads, rows, k.shape[2], neurons)
    native.call("lapis_spikes_relate", q, k, *sizes, min_code, distance, ctypes.byref(crossed), threads)
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
    membranes = (mantissa, exponent, mantissa.shape[1])
    native.call("lapis_spikes_leak", distance, *distance.shape, *membranes, bits, affinity, mass)
    return affinity, mass, steps


def mix(spikes: Spikes, affinity: Array, signed: bool, min_code: int = 1, threads: int = 1) -> tuple[Int32, int]:
    """Value spikes through affinities: (T - z0 + 1, H, M, C or 2 C), (H, N, M) -> V (H, C, N), synapses crossed."""
    train, synapses = _contiguous(spikes, np.bool_), _contiguous(affinity, np.int32)
    channels, rows = train.shape[3] // (1 + signed), synapses.shape[1]
    voltage, crossed = np.empty((train.shape[1], channels, rows), dtype=np.int32), ctypes.c_int64()
    sizes = (*train.shape, synapses, rows, channels)
    native.call("lapis_spikes_mix", train, *sizes, min_code, voltage, ctypes.byref(crossed), threads)
    return voltage, crossed.value


@dataclass(frozen=True)
class NativeSimulator(Simulator):
    """The simulator with its operations in C, on some threads; the answers, codes and events are the same."""

    threads: int = 1

    def _fire(self, crossing: Crossing, signed: bool, min_code: int) -> tuple[Spikes, Codes]:
        return fire(crossing, self.network.config.window, signed, min_code, self.threads)

    def _integrate(self, layer: Layer, spikes: Spikes, signed: bool, min_code: int) -> tuple[Array, int]:
        return integrate(spikes, layer.weight.T, min_code, self.threads)

    def _relate(self, q: Spikes, k: Spikes, min_code: int) -> tuple[Array, int]:
        return relate(q, k, min_code, self.threads)

    def _leak(self, index: int, distance: Array) -> tuple[Array, Int64, int]:
        return leak_affinities(distance, *self.membranes[index], self.network.config.affinity_bits)

    def _mix(self, spikes: Spikes, affinity: Array, signed: bool, min_code: int) -> tuple[Array, int]:
        return mix(spikes, affinity, signed, min_code, self.threads)


def _by_level(thresholds: Array) -> Array:
    """(rows or 1, sets, levels) -> (rows or 1, levels, sets): neurons that are asked together lie together."""
    return _contiguous(thresholds.transpose(0, 2, 1), np.float64)


def _contiguous(array: npt.NDArray[Any], kind: type) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=kind)
