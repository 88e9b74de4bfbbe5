"""First-spike neurons and Lapis attention as SpikingJelly modules, and rules for its operation counters.

Time is the first axis, as in SpikingJelly. A window of T steps carries codes 0..T: a spike at step n counts T - n
times, because it is added to a current, I += x, and the current to the voltage, V += I. Between two neurons stand
layers without a bias, such as `layer.Linear(..., bias=False)`, and sums of what they send are sums of voltages. It
needs `pip install spikingjelly`.

    net = nn.Sequential(
        layer.Linear(16, 32, bias=False), FirstSpikeNode(15, 32),
        SpikingAttention(LapisAttention(32, heads=4, coding="unsigned", readout="spikes")),
    )
    functional.set_step_mode(net, "m")
    currents = net(spikes)  # (T, batch, tokens, 16) -> (T, batch, tokens, 32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import Coding
from lapis.deploy.network import Layer
from lapis.deploy.thresholds import layer_thresholds
from lapis.errors import LapisError
from lapis.nn import LapisAttention
from lapis.nn.attention import join_heads
from lapis.nn.linear import Linear
from lapis.nn.quantizer import ActivationQuantizer, required
from lapis.nn.relations import Relation
from lapis.ops.tensors import silence

try:
    from spikingjelly.activation_based import base
except ImportError as error:
    raise ImportError(f"this bridge needs SpikingJelly: pip install spikingjelly ({error})") from error

__all__ = [
    "FirstSpikeNode",
    "SpikingAttention",
    "ThresholdNode",
    "counting_rules",
    "integrate",
    "spike_train",
]


def integrate(x_seq: Tensor) -> Tensor:
    """V after the last step of I += x[n], V += I: the sum of (T - n) x[n], (T, ...) -> (...)."""
    steps = x_seq.shape[0]
    ramp = torch.arange(steps, 0, -1, dtype=x_seq.dtype, device=x_seq.device)
    # A product and a sum: a matrix product would look like synapses to a counter.
    return (x_seq * ramp.view(-1, *[1] * (x_seq.dim() - 1))).sum(0)


def spike_train(codes: Tensor, window: int, signed: bool = False) -> Tensor:
    """Codes (..., n) as spikes of 0 and 1 (T, ..., n), or (T, ..., 2 n) with ON and OFF neurons; differentiable."""
    return torch.stack([_spikes(codes, window, step, signed) for step in range(window)])


def _spikes(codes: Tensor, window: int, step: int, signed: bool) -> Tensor:
    """The spikes of one step: a code z fires at step T - z, a code -z by its OFF neuron."""
    level = window - step
    if not signed:
        on: Tensor = _SpikeAt.apply(codes, level, level / _squares(window))  # type: ignore[no-untyped-call]
        return on
    share = level / (2 * _squares(window))
    pair = [_SpikeAt.apply(sign * codes, level, share) for sign in (1, -1)]  # type: ignore[no-untyped-call]
    return torch.cat(pair, dim=-1)


def _squares(window: int) -> int:
    """1 + 4 + ... + T^2."""
    return window * (window + 1) * (2 * window + 1) // 6


class _SpikeAt(torch.autograd.Function):
    """1 where the code is `level`, else 0.

    Whoever reads a train as sum_n (T - n) S[n] = z sends (T - n) dL/dz to the spike of step n. The share
    (T - n) / (1 + ... + T^2) of each step adds up to dL/dz, whether the neuron fired or not.
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, level: int, share: float) -> Tensor:
        ctx.share = share
        return (codes == level).to(codes.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.share, None, None


class _Node(base.MemoryModule):  # type: ignore[misc]
    """Neurons that integrate one window of T steps and fire in the next, at most once.

    Step mode "s": each call is one step; the spikes that it gives are those of the window before. Step mode "m": the
    currents of a window (T, ..., n)  ->  the spikes of the window that follows, (T, ..., n) or with ON and OFF neurons
    (T, ..., 2 n); the state of single steps stays as it is.
    """

    def __init__(self, window: int, signed: bool) -> None:
        super().__init__()
        self.window, self.signed = window, signed
        self.register_memory("current", 0.0)
        self.register_memory("voltage", 0.0)
        self.register_memory("codes", 0.0)
        self.register_memory("step", 0)

    def codes_of(self, voltage: Tensor) -> Tensor:
        """The code of each neuron at the end of its window."""
        raise NotImplementedError

    def materialize_states(self, inputs: tuple[Any, ...], states: tuple[Any, ...], step_mode: str) -> tuple[Any, ...]:
        """Numbers become tensors of the input's shape; the step stays a number."""
        if step_mode == "m":
            return states
        tensors = (one if torch.is_tensor(one) else torch.full_like(inputs[0], one) for one in states[:3])
        return (*tensors, states[3])

    def single_step_functional_forward(
        self, inputs: tuple[Tensor, ...], states: tuple[Any, ...], **_: object
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        current, voltage, codes, step = states
        spikes = _spikes(codes, self.window, step, self.signed)
        current = current + inputs[0]
        voltage, step = voltage + current, step + 1
        if step == self.window:
            codes = self.codes_of(voltage)
            current, voltage, step = torch.zeros_like(current), torch.zeros_like(voltage), 0
        return (spikes,), (current, voltage, codes, step)

    def multi_step_functional_forward(
        self, inputs: tuple[Tensor, ...], states: tuple[Any, ...], **_: object
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        _check_window(inputs[0], self.window)
        return (spike_train(self.codes_of(integrate(inputs[0])), self.window, self.signed),), states

    def extra_repr(self) -> str:
        return f"window={self.window}, {'signed, ' if self.signed else ''}{super().extra_repr()}"


class FirstSpikeNode(_Node):
    """z = clamp(floor((V + bias)/s + 1/2), 0, T), sent as one spike at step T - z; step s and bias are learned.

    `neurons` is the size of the last axis. Coding "signed" has an ON and an OFF neuron for each, of which one may fire.
    `lapis.nn.calibrate` finds the step. A code below `min_code` stays silent.
    """

    def __init__(self, window: int, neurons: int, coding: Coding = "unsigned", min_code: int = 1) -> None:
        if coding == "offset":
            raise LapisError("coding='offset' has no spikes of its own; use 'unsigned' or 'signed'")
        super().__init__(window, coding == "signed")
        self.quantizer = ActivationQuantizer(window, coding, min_code)
        self.bias = nn.Parameter(torch.zeros(neurons))

    def codes_of(self, voltage: Tensor) -> Tensor:
        return self.quantizer.codes(voltage + self.bias)


class ThresholdNode(_Node):
    """The neurons of a deployed layer: in their window they fire at the first step n with V >= threshold[T - n].

    thresholds (neurons, levels) for the codes low+1..T; low is 0, or -T with ON and OFF neurons.
    """

    thresholds: Tensor

    def __init__(self, thresholds: Tensor, window: int, min_code: int = 1) -> None:
        low = window - thresholds.shape[-1]
        if low not in (0, -window):
            raise LapisError(f"{thresholds.shape[-1]} thresholds for window {window}; give {window} or {2 * window}")
        super().__init__(window, low < 0)
        self.low, self.min_code = low, min_code
        self.register_buffer("thresholds", thresholds)

    @classmethod
    def of(cls, layer: Layer, window: int, signed: bool = False, min_code: int = 1) -> ThresholdNode:
        """The neurons behind a layer of a deployed network, whose integer sums are exact in float32."""
        found = layer_thresholds(layer, -window if signed else 0, window)
        return cls(torch.from_numpy(found).float(), window, min_code)

    def codes_of(self, voltage: Tensor) -> Tensor:
        reached = (voltage[..., None] >= self.thresholds).sum(-1).to(voltage.dtype)
        return silence(reached + self.low, self.min_code)


class SpikingAttention(nn.Module, base.MultiStepModule):  # type: ignore[misc]
    """A `LapisAttention` on spike trains: spikes (T, B, N, D)  ->  currents (T, B, N, D) for the next neurons.

    With coding "signed" the spikes are those of ON and OFF neurons, (T, B, N, 2 D). The layer needs
    readout="spikes". Its weights are used as they are: integrated, the currents are what the layer gives for the
    values of the codes. A layer that has seen no data takes codes as values. The bias of the projection comes with
    the last step, where it counts once.
    """

    def __init__(self, attention: LapisAttention) -> None:
        super().__init__()
        self._step_mode = "m"
        config = attention.config
        coding = {config.coding_of(point) for point in ("attention_in", "q", "v", "readout")}
        if not config.quantize or config.readout != "spikes" or "offset" in coding:
            raise LapisError("SpikingAttention needs a layer with readout='spikes' and coding 'unsigned' or 'signed'")
        if not (isinstance(attention.relation, Relation) and attention.relation.on_codes):
            raise LapisError(f"relation={config.relation} does not compare codes; use relation='laplacian'")
        self.attention = attention
        self.window = config.window
        # The codes arrive as spikes: there is nothing to find a step from.
        if not required(attention.input).is_ready:
            required(attention.input).mark_ready()

    def forward(self, spikes: Tensor) -> Tensor:
        layer = self.attention
        source, qk, v, readout = map(required, (layer.input, layer.qk, layer.v, layer.readout))
        self._check(spikes, source)
        arrived = F.linear(spikes, _synapses(layer.qkv, source))
        qkv = layer.split_heads(source.step * integrate(arrived) + layer.qkv.bias)  # (3, B, H, N, C)
        codes, v_codes = qk.codes(qkv[:2]), v.codes(qkv[2])
        if layer.observer is not None:
            layer.observer(layer, qkv, codes, v.value(v_codes))
        weights = cast(Relation, layer.relation).weights(codes[0], codes[1])  # (B, H, N, N)
        mixed = integrate(weights @ spike_train(v_codes, self.window, v.low < 0))  # (B, H, N, C), or 2 C
        if v.low < 0:
            on, off = mixed.chunk(2, dim=-1)
            mixed = on - off
        fired = spike_train(readout.codes(join_heads(v.step * mixed)), self.window, readout.low < 0)
        currents = readout.step * F.linear(fired, _synapses(layer.proj, readout))
        return torch.cat([currents[:-1], currents[-1:] + layer.proj.bias])

    def _check(self, spikes: Tensor, source: ActivationQuantizer) -> None:
        _check_window(spikes, self.window)
        neurons = self.attention.config.width * (2 if source.low < 0 else 1)
        if spikes.dim() != 4 or spikes.shape[-1] != neurons:
            raise LapisError(f"spikes have shape {tuple(spikes.shape)}; this layer takes (T, batch, tokens, {neurons})")


def counting_rules() -> dict[Any, Callable[[tuple[Any, ...], dict[str, Any], Any], int]]:
    """Rules for `extra_rules` of SpikingJelly's `SynOpCounter` and `ACCounter`, which count one per spike and synapse.

    A spike of q meets the keys of its head and channel, a spike of k the queries, a spike of v the rows that it is
    added to. SpikingJelly itself counts the value sum where it is a product with spikes, as in `SpikingAttention`.
    """
    return {
        torch.ops.lapis.l1_distance.default: _count_distance,
        torch.ops.aten._cdist_forward.default: _count_distance,
        torch.ops.lapis.attention.default: _count_attention,
    }


def _count_distance(arguments: tuple[Any, ...], _: dict[str, Any], __: Any) -> int:
    """(q, k), or (q, k, p, ...) of torch's distance, where only p = 1 is ours."""
    q, k = arguments[:2]
    if len(arguments) > 2 and arguments[2] != 1:
        return 0
    return int(q.count_nonzero()) * int(k.shape[-2]) + int(k.count_nonzero()) * int(q.shape[-2])


def _count_attention(arguments: tuple[Any, ...], names: dict[str, Any], out: Any) -> int:
    q, k, v = arguments[:3]
    return _count_distance((q, k), names, out) + int(v.count_nonzero()) * int(q.shape[-2])


def _synapses(linear: Linear, source: ActivationQuantizer) -> Tensor:
    """The weights as the spikes of `source` cross them: OFF neurons have the opposite ones."""
    weight = linear.weight if linear.quantizer is None else linear.quantizer(linear.weight)
    return torch.cat([weight, -weight], dim=1) if source.low < 0 else weight


def _check_window(x_seq: Tensor, window: int) -> None:
    if x_seq.dim() < 2 or x_seq.shape[0] != window:
        raise LapisError(f"x has shape {tuple(x_seq.shape)}; the first axis is time and must have {window} steps")
