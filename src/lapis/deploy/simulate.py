"""The spiking network: it simulates boolean spike trains, every neuron at every step of every window.

Codes are not used here. A layer gets spikes (T, tokens, neurons), at most one per neuron, and gives spikes:

    integrate   I += w on a spike, V += I at every step: a spike at step n acts for T - n steps
    fire        in its own window a neuron spikes at the first n with V >= theta[T - n], a threshold that falls; the
                window ends at the deadline, step T - z0, and who has not fired by then stays silent
    relate      a counter runs for every query, key and channel from the first of their two spikes to the second
    leak        a unit membrane leaks for as long as the counter ran; a row's gain is set by its first arrival
    mix         value spikes, weighted by affinities, integrated like all others

A silent neuron causes no work. The residual stream is a membrane that is not reset. LayerNorm, patch embedding and
head are not spiking operations; they are computed as in the integer model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lapis._util.locks import cached
from lapis.codes import pow2_exponent
from lapis.config import AFFINITY_BITS
from lapis.deploy import arithmetic, integer, leak
from lapis.deploy.arithmetic import Array, Codes, Int32, Int64
from lapis.deploy.network import Layer, Network, Norm, check_images
from lapis.deploy.noise import Noise
from lapis.deploy.thresholds import ladder_thresholds, layer_thresholds, readout_thresholds
from lapis.energy.counts import Operator, window_steps
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.spikes import encode, first_spike, split_on_off
from lapis.trace import Point, Trace

Spikes = npt.NDArray[np.bool_]
Reached = Callable[[int], Array]


@dataclass
class Events:
    """Counts of what happened in a run over `images` images.

    operations: one per synapse that a spike crossed. leak_steps: the longest leak of each block, over all images.
    window_steps: the latency of one image in steps, windows only: 5 L T without deadlines.
    """

    window_steps: int = 0
    images: int = 0
    spikes: Counter[tuple[int, Point]] = field(default_factory=Counter)
    operations: Counter[tuple[int, Operator]] = field(default_factory=Counter)
    leak_steps: dict[int, int] = field(default_factory=dict)

    def leaked(self, block: int, steps: int) -> None:
        self.leak_steps[block] = max(self.leak_steps.get(block, 0), steps)

    def add(self, other: Events) -> None:
        """Add the counts of other images on the same network."""
        self.window_steps = max(self.window_steps, other.window_steps)
        self.images += other.images
        self.spikes.update(other.spikes)
        self.operations.update(other.operations)
        for block, steps in other.leak_steps.items():
            self.leaked(block, steps)

    @property
    def latency(self) -> int:
        """Latency of one image in steps, if each leak step takes one step as well."""
        return self.window_steps + sum(self.leak_steps.values())


class Simulated(NamedTuple):
    """Integer logits, the codes that the spikes stand for, and the counted events."""

    logits: Int64
    trace: Trace
    events: Events


@dataclass(frozen=True)
class Crossing:
    """What a window of neurons is asked at each level m: value >= rise[m], or value < fall[m] where there is a fall.

    values (rows, neurons). rise, fall (rows or 1, sets, levels), levels low+1..T: neurons share a set of thresholds in
    equal groups, all of a token (norms), one head's (readout) or one each (layers).
    """

    values: Array
    low: int
    rise: Array
    fall: Array | None = None

    def __call__(self, level: int) -> Array:
        values = self.values.reshape(len(self.values), self.rise.shape[1], -1)
        reached = values >= self.rise[..., level - self.low - 1, None]
        if self.fall is not None:
            reached |= values < self.fall[..., level - self.low - 1, None]
        return np.asarray(reached).reshape(self.values.shape)


def simulate(network: Network, images: Pixels) -> Simulated:
    """Run a network as spikes, image by image."""
    return Simulator(network).run(images)


def integrate(spikes: Spikes, synapses: Array, min_code: int = 1) -> tuple[Array, int]:
    """I += w on a spike, V += I at every step: after T steps V = sum w (T - t) over the neurons that fired.

    The window of the sending neurons ends at their deadline, after T - z0 + 1 steps. No spike arrives in the last
    z0 - 1 steps, so they are one addition: V += (z0 - 1) I.
    spikes (T - z0 + 1, targets, neurons), synapses (neurons, O)  ->  V (targets, O), synapses crossed. Each target has
    its own neurons; in linear layers a target is a token.
    """
    current = np.zeros((spikes.shape[1], synapses.shape[1]), dtype=synapses.dtype)
    voltage = np.zeros_like(current)
    crossed = 0
    for arrived in spikes:
        target, neuron = np.nonzero(arrived)
        _deliver(current, target, synapses[neuron])
        crossed += target.size * synapses.shape[1]
        voltage += current
    return voltage + (min_code - 1) * current, crossed


def fire(reached: Reached, window: int, signed: bool, min_code: int = 1) -> Spikes:
    """One spike at the first step n <= T - z0 whose level T - n is reached, z0 the minimum code that fires.

    The result is (T - z0 + 1, ..., neurons), or with ON and OFF neurons (..., 2 n). An OFF neuron stands for -m: it
    fires at the first n at which the level 1 - m, m = T - n, is not reached.
    """
    trains = [_first_crossing(reached, window, min_code)]
    if signed:
        trains.append(_first_crossing(lambda level: ~reached(1 - level), window, min_code))
    return np.concatenate(trains, axis=-1)


def _first_crossing(condition: Reached, window: int, min_code: int) -> Spikes:
    train: list[Array] = []
    waiting: Array | bool = True
    for step in range(window - min_code + 1):
        crossed = condition(window - step)
        train.append(crossed & waiting)
        waiting = waiting & ~crossed
    return np.stack(train)


def relate(q: Spikes, k: Spikes, min_code: int = 1) -> tuple[Int64, int]:
    """D_ij = sum_c |t^q_ic - t^k_jc| by counters that run between two spikes; (T - z0 + 1, H, N, C) each -> (H, N, N).

    A spike starts the counters of all partners that have not fired and stops those of partners that have. Counters that
    still run stop at the end of the window, which is the latency of a silent neuron.
    """
    _, heads, tokens, channels = q.shape
    # +1 for a partner that has not fired, -1 for one that has, arranged so that one spike uses one row.
    q_state = np.ones((heads, channels, tokens), dtype=np.int32)
    k_state = np.ones((heads, channels, k.shape[2]), dtype=np.int32)
    running = np.zeros((heads, tokens, k.shape[2]), dtype=np.int32)
    distance = np.zeros(running.shape, dtype=np.int64)
    crossed = 0
    for q_now, k_now in zip(q, k, strict=True):
        crossed += _meet(running, q_now, k_state)
        q_state[q_now.transpose(0, 2, 1)] = -1
        crossed += _meet(running.transpose(0, 2, 1), k_now, q_state)
        k_state[k_now.transpose(0, 2, 1)] = -1
        distance += running
    return distance + (min_code - 1) * running, crossed


def _meet(running: Array, now: Spikes, partners: Array) -> int:
    head, token, channel = np.nonzero(now)
    change = np.zeros((now.shape[0] * now.shape[1], partners.shape[2]), dtype=running.dtype)
    _deliver(change, head * now.shape[1] + token, partners[head, channel])
    running += change.reshape(running.shape)
    return int(head.size * partners.shape[2])


def leak_affinities(
    distance: Int64, membranes: Iterator[tuple[Array, Array]], bits: int = AFFINITY_BITS
) -> tuple[Int64, Int64, int]:
    """Every pair's membrane after its own number of leak steps (H, N, M), the row sums (H, N), and the number of steps.

    All membranes of a head start together and leak alike, so one trajectory per head, `membranes`, is enough: each pair
    reads it at its own step. The first pair of a row that reads sets the row's gain, a power of two.
    """
    affinity = np.zeros(distance.shape, dtype=np.int64)
    gain = np.zeros(distance.shape[:2], dtype=np.int64)
    started = np.zeros(distance.shape[:2], dtype=bool)
    order = np.argsort(distance, axis=None, kind="stable")
    last = int(distance.flat[order[-1]])
    ends = np.searchsorted(distance.reshape(-1)[order], np.arange(last + 1), side="right")
    begin = 0
    for end, (u, e) in zip(ends, membranes, strict=False):
        if end > begin:
            head, query, key = np.unravel_index(order[begin:end], distance.shape)
            fresh = ~started[head, query]
            gain[head[fresh], query[fresh]] = e[head[fresh]]
            started[head[fresh], query[fresh]] = True
            affinity[head, query, key] = leak.read(u[head], e[head], gain[head, query], bits)
        begin = end
    return affinity, affinity.sum(axis=-1), last


def mix(spikes: Spikes, affinity: Int64, signed: bool, min_code: int = 1) -> tuple[Int64, int]:
    """Value spikes through affinities, I += A on a spike, V += I at every step, as in `integrate`.

    spikes (T - z0 + 1, H, M, C) or (..., 2 C) with OFF neurons, affinity (H, N, M)  ->  V (H, C, N), synapses crossed.
    """
    steps, heads, _, neurons = spikes.shape
    channels = neurons // 2 if signed else neurons
    synapses = np.ascontiguousarray(affinity.transpose(0, 2, 1))
    current = np.zeros((heads * channels, affinity.shape[1]), dtype=np.int64)
    voltage = np.zeros_like(current)
    crossed = 0
    for step in range(steps):
        for sign, part in enumerate(np.split(spikes[step], 2 if signed else 1, axis=-1)):
            head, channel, source = np.nonzero(part.transpose(0, 2, 1))
            arrivals = synapses[head, source]
            _deliver(current, head * channels + channel, -arrivals if sign else arrivals)
            crossed += arrivals.size
        voltage += current
    return (voltage + (min_code - 1) * current).reshape(heads, channels, -1), crossed


def _deliver(current: Array, target: Array, arrivals: Array) -> None:
    """current[target] += arrivals, for targets in rising order, one row per arrival."""
    if target.size:
        starts = np.flatnonzero(np.diff(target, prepend=-1))
        current[target[starts]] += np.add.reduceat(arrivals, starts, axis=0)


@dataclass(frozen=True)
class Simulator:
    """A network with its computed thresholds, ready to run as spikes, with noise if there is any."""

    network: Network
    noise: Noise | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.network.compared_by == "dot":
            raise LapisError(
                f"relation={self.network.config.relation!r} multiplies queries by keys, which first spikes cannot do; "
                "run it with the engine, the integer model or ONNX, or train with relation='laplacian'"
            )

    @cached
    def exponents(self) -> range:
        """Every power of two that a row can be scaled by; the nearest key alone contributes 2**(bits - 1) or more."""
        tokens, bits = self.network.config.tokens, self.network.config.affinity_bits
        return range(bits - 1, int(pow2_exponent(tokens * ((1 << bits) - 1))) + 1)

    @cached
    def thresholds(self) -> tuple[dict[Point, Array], ...]:
        """The thresholds (outputs, levels) of the points behind layers, and (exponents, levels) of the readout."""
        network, window, d = self.network, self.network.config.window, self.network.config.width
        found = []
        for block in network.blocks:
            theta = {
                point: layer_thresholds(block.qkv.rows(slice(d * part, d * part + d)), network.low(point), window)
                for part, point in enumerate(integer.QKV)
            }
            theta["readout"] = readout_thresholds(block.readout, network.low("readout"), window, self.exponents)
            found.append(theta)
        return tuple(found)

    @cached
    def ladders(self) -> tuple[tuple[Array, Array], ...]:
        """The thresholds of the hidden neurons, rising and falling."""
        return tuple(ladder_thresholds(block.fc1, block.rise, block.fall) for block in self.network.blocks)

    @cached
    def membranes(self) -> list[tuple[Array, Int64]]:
        """u and e (H, S) of every block, after 0..S-1 steps of leak."""
        return self.network.membranes_by_distance()

    def run(self, images: Pixels) -> Simulated:
        """Integer logits, codes and events of a batch of images (B, S, S, 3)."""
        network = self.network
        check_images(images, network.config.image_size)
        events = Events(window_steps(network.config))
        traces, logits = [], []
        for image in images:
            trace = Trace(network.config.window)
            stream = integer.embed(network, image[None])[0]
            for index in range(network.config.depth):
                stream = self._attention(index, stream, trace, events)
                stream = self._feed_forward(index, stream, trace, events)
            events.images += 1
            logits.append(integer.classify(network, stream[None])[0])
            traces.append(trace)
        return Simulated(np.stack(logits), Trace.joined(traces), events)

    def _attention(self, index: int, stream: Int32, trace: Trace, events: Events) -> Int32:
        network, block, theta = self.network, self.network.blocks[index], self.thresholds[index]
        spikes = self._emit_norm(index, "attention_in", block.attention_norm, stream, trace, events)
        voltage = self._linear(index, "qkv", block.qkv, "attention_in", spikes, events)
        spiking = (
            self._emit(index, point, Crossing(part, network.low(point), theta[point][None]), trace, events)
            for point, part in zip(integer.QKV, np.split(voltage, 3, axis=-1), strict=True)
        )
        q, k, v = map(self._by_head, spiking)
        distance, crossed = self._relate(q, k, network.min_code("q", index))
        events.operations[index, "relation"] += crossed
        delay = network.delays[index]
        affinity, mass, steps = self._leak(index, distance if delay is None else distance + delay)
        events.leaked(index, steps)
        mixed, crossed = self._mix(v, affinity, network.low("v") < 0, network.min_code("v", index))
        events.operations[index, "value"] += crossed

        # (N, H, levels): the threshold of a readout neuron falls, shifted by the power of two of its row.
        falling = theta["readout"][pow2_exponent(mass) - self.exponents[0]].transpose(1, 0, 2)
        crossing = Crossing(mixed.transpose(2, 0, 1).reshape(len(stream), -1), network.low("readout"), falling)
        y_spikes = self._emit(index, "readout", crossing, trace, events)
        voltage = self._linear(index, "proj", block.proj, "readout", y_spikes, events)
        return arithmetic.add_to_stream(stream, arithmetic.affine(voltage, block.proj.scale, block.proj.shift))

    def _feed_forward(self, index: int, stream: Int32, trace: Trace, events: Events) -> Int32:
        block, (rise, fall) = self.network.blocks[index], self.ladders[index]
        spikes = self._emit_norm(index, "mlp_in", block.mlp_norm, stream, trace, events)
        hidden = self._linear(index, "fc1", block.fc1, "mlp_in", spikes, events)
        crossing = Crossing(hidden, self.network.low("mlp_hidden"), rise[None], fall[None])
        spikes = self._emit(index, "mlp_hidden", crossing, trace, events)
        voltage = self._linear(index, "fc2", block.fc2, "mlp_hidden", spikes, events)
        return arithmetic.add_to_stream(stream, arithmetic.affine(voltage, block.fc2.scale, block.fc2.shift))

    def _emit_norm(self, index: int, point: Point, norm: Norm, stream: Int32, trace: Trace, events: Events) -> Spikes:
        low = self.network.low(point)
        levels = np.arange(low + 1, self.network.config.window + 1)[None, None]
        return self._emit(index, point, Crossing(norm.pre(stream, self.network.eps), low, levels), trace, events)

    def _emit(self, index: int, point: Point, crossing: Crossing, trace: Trace, events: Events) -> Spikes:
        """One window of spikes, noted as the codes that they stand for."""
        signed, min_code = self.network.low(point) < 0, self.network.min_code(point, index)
        spikes, codes = self._fire(crossing, signed, min_code)
        if self.noise is not None:
            window = self.network.config.window
            codes = self.noise(codes, window, min_code, index, point)
            spikes = encode(split_on_off(codes, window) if signed else codes, window)[: window - min_code + 1]
        events.spikes[index, point] += int(np.count_nonzero(spikes))
        trace.note(index, point, codes[None])
        return spikes

    def _linear(
        self, index: int, operator: Operator, layer: Layer, source: Point, spikes: Spikes, events: Events
    ) -> Array:
        signed, min_code = self.network.low(source) < 0, self.network.min_code(source, index)
        voltage, crossed = self._integrate(layer, spikes, signed, min_code)
        events.operations[index, operator] += crossed
        return voltage

    def _by_head(self, spikes: Spikes) -> Spikes:
        """(T, N, D) or (T, N, 2 D) -> (T, H, N, C) or (T, H, N, 2 C), each head with its own OFF neurons."""
        config = self.network.config
        parts = spikes.reshape(*spikes.shape[:2], -1, config.heads, config.head_width).transpose(0, 3, 1, 2, 4)
        return np.asarray(parts.reshape(spikes.shape[0], config.heads, spikes.shape[1], -1))

    # The five spiking operations; `simulate_native` has them in C.

    def _fire(self, crossing: Crossing, signed: bool, min_code: int) -> tuple[Spikes, Codes]:
        window = self.network.config.window
        spikes = fire(crossing, window, signed, min_code)
        latency = first_spike(spikes)
        codes = np.where(latency < len(spikes), window - latency, 0)
        if signed:
            on, off = np.split(codes, 2, axis=-1)
            codes = on - off
        return spikes, codes.astype(np.int8)

    def _integrate(self, layer: Layer, spikes: Spikes, signed: bool, min_code: int) -> tuple[Array, int]:
        synapses: Array = layer.weight.T.astype(np.int32)
        return integrate(spikes, np.concatenate([synapses, -synapses]) if signed else synapses, min_code)

    def _relate(self, q: Spikes, k: Spikes, min_code: int) -> tuple[Array, int]:
        return relate(q, k, min_code)

    def _leak(self, index: int, distance: Array) -> tuple[Array, Int64, int]:
        membranes = zip(*(array.T for array in self.membranes[index]), strict=True)
        return leak_affinities(distance, membranes, self.network.config.affinity_bits)

    def _mix(self, spikes: Spikes, affinity: Array, signed: bool, min_code: int) -> tuple[Array, int]:
        return mix(spikes, affinity, signed, min_code)
