"""Lapis attention as a SpikingJelly module on spike trains, and the neurons of a deployed layer.

They stand between the first-spike neurons of `first_spike.py`, whose conventions they share. It needs
`pip install spikingjelly`, and this folder on Python's path.

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

import first_spike
import torch
import torch.nn.functional as F
from first_spike import BaseFirstSpikeNode, count_distance, integrate, spike_train
from spikingjelly.activation_based import base
from torch import Tensor, nn

from lapis.deploy.network import Layer
from lapis.deploy.thresholds import layer_thresholds
from lapis.errors import LapisError
from lapis.nn import LapisAttention
from lapis.nn.attention import join_heads
from lapis.nn.quantizer import ActivationQuantizer, Linear, required
from lapis.nn.relations import Relation
from lapis.ops.tensors import silence

__all__ = ["SpikingAttention", "ThresholdNode", "counting_rules"]


class ThresholdNode(BaseFirstSpikeNode):
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
        relation = attention.relation
        if not (isinstance(relation, Relation) and relation.on_codes) or relation.rule.compared_by == "dot":
            raise LapisError(f"relation={config.relation} does not compare codes by their spikes; use 'laplacian'")
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
        neurons = self.attention.config.width * (2 if source.low < 0 else 1)
        if spikes.dim() != 4 or (spikes.shape[0], spikes.shape[-1]) != (self.window, neurons):
            raise LapisError(
                f"spikes have shape {tuple(spikes.shape)}; this layer takes ({self.window}, batch, tokens, {neurons})"
            )


def counting_rules() -> dict[Any, Callable[[tuple[Any, ...], dict[str, Any], Any], int]]:
    """The rules of `first_spike`, and those of Lapis' own operators.

    A spike of v meets the rows that it is added to. SpikingJelly itself counts the value sum where it is a product with
    spikes, as in `SpikingAttention`.
    """
    return {
        **first_spike.counting_rules(),
        torch.ops.lapis.l1_distance.default: count_distance,
        torch.ops.lapis.attention.default: _count_attention,
    }


def _count_attention(arguments: tuple[Any, ...], names: dict[str, Any], out: Any) -> int:
    q, k, v = arguments[:3]
    return count_distance((q, k), names, out) + int(v.count_nonzero()) * int(q.shape[-2])


def _synapses(linear: Linear, source: ActivationQuantizer) -> Tensor:
    """The weights as the spikes of `source` cross them: OFF neurons have the opposite ones."""
    weight = linear.weight if linear.quantizer is None else linear.quantizer(linear.weight)
    return torch.cat([weight, -weight], dim=1) if source.low < 0 else weight
