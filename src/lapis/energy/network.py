"""Other people's spiking transformers, read from a file, so that every convention prices them as it prices ours.

The file is JSON. A layer has its multiplications as a list of factors and the firing rate of its input per time step; a
run of equal blocks has its shape. What a paper reports for the network is kept beside what we compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lapis._util.files import read_json
from lapis.config import FLOAT_WEIGHTS, WEIGHT_BITS
from lapis.energy.conventions import Convention
from lapis.energy.costs import Kind
from lapis.energy.counts import OPERATORS
from lapis.energy.fields import LIST, NUMBER, SHARE, TABLE, TEXT, WHOLE, Check, among, read_fields
from lapis.energy.operations import NetworkPart, Operation
from lapis.errors import LapisError

# real: not spikes, multiplied once per image.   spikes: 0 or 1 per step.   integers: sums of spikes, as behind a
# residual addition of spikes, which strict conventions multiply.
Input = Literal["real", "spikes", "integers"]

# mixing, the products of a block for its scores, and again for its values. pairs: N^2 D.   linear: N D^2 / H, where
# keys are multiplied by values first.   none: they are listed as layers.
_FACTORS: Check = (
    lambda value: isinstance(value, list) and all(type(factor) is int and factor > 0 for factor in value),
    "a list of whole numbers to multiply, as [14, 14, 9, 384, 768]",
)
_INPUT = among(get_args(Input))
_NETWORK = {"name": TEXT, "time_steps": WHOLE, "layers": LIST}
_NETWORK_OPTIONS = {
    "source": TEXT,
    "weight_bits": among(WEIGHT_BITS),
    "rate": SHARE,
    "rate_source": TEXT,
    "reported": LIST,
}
_LAYER = {"operator": TEXT, "part": among(get_args(NetworkPart)), "macs": _FACTORS}
_LAYER_OPTIONS = {"neurons": _FACTORS, "rate": SHARE, "input": _INPUT, "source": TEXT}
_BLOCKS = dict.fromkeys(("blocks", "tokens", "width", "heads"), WHOLE)
_BLOCKS_OPTIONS = {
    "mlp_ratio": WHOLE, "projections": WHOLE, "mixing": among(("pairs", "linear", "none")), "input": _INPUT,
    "rates": TABLE, "source": TEXT,
}  # fmt: skip


@dataclass(frozen=True)
class NetworkLayer:
    """`macs` multiplications if it were dense; `rate` of its inputs spike in a step; `neurons` behind it."""

    operator: str
    part: NetworkPart
    macs: int
    rate: float
    input: Input = "spikes"
    neurons: int = 0


@dataclass(frozen=True)
class SpikingNetwork:
    """A spiking network by its layers; `reported` are the millijoules that papers give, by their source."""

    name: str
    time_steps: int
    weight_bits: int
    layers: tuple[NetworkLayer, ...]
    reported: Mapping[str, float]
    fields: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The network in the form of its file."""
        return dict(self.fields)

    def operations(self, chosen: Convention) -> list[Operation]:
        """What one image costs: real inputs once, spikes in every step as they fire."""
        if chosen.circuits:
            raise LapisError(
                f"convention {chosen.name} prices the circuits of a Lapis head; use another for {self.name}"
            )
        return [item for layer in self.layers for item in self._layer(layer, chosen)]

    def _layer(self, layer: NetworkLayer, chosen: Convention) -> Iterator[Operation]:
        kind: Kind
        if layer.input == "real":
            operands = chosen.patch_operands if layer.part == "patch" else chosen.head_operands
            if chosen.patch_and_head:
                kind = "mac" if operands is None else "product"
                yield Operation(
                    layer.operator, layer.part, None, kind, layer.macs, layer.macs, False, operands or (8, 8)
                )
        else:
            dense, rate = self.time_steps * layer.macs, layer.rate
            kind = "accumulate" if self.weight_bits == FLOAT_WEIGHTS else "integer_accumulate"
            if layer.operator == "relation":
                rate = rate if chosen.relation in ("rate", "delivered") else 1.0
                kind = "integer_accumulate" if chosen.relation == "integer" else "accumulate"
            elif layer.operator == "value":
                kind = chosen.value_kind
            elif layer.input == "integers" and chosen.value_kind == "mac":
                kind = "mac"
            yield Operation(layer.operator, layer.part, None, kind, rate * dense, dense, driven=True)
        if chosen.everything_else and layer.neurons:
            updates = self.time_steps * layer.neurons
            yield Operation("membranes", layer.part, None, "accumulate", updates, updates)

    def dense(self) -> list[Operation]:
        """The network with every layer multiplied once, in floats."""
        return [Operation(of.operator, of.part, None, "mac", of.macs, of.macs) for of in self.layers]


def load_spiking_network(path: str | Path) -> SpikingNetwork:
    """Read a network from its JSON file; every field is checked."""
    where = str(path)
    fields = read_fields(read_json(path), _NETWORK, where, _NETWORK_OPTIONS)
    layers: list[NetworkLayer] = []
    for number, entry in enumerate(fields["layers"]):
        read = _blocks if isinstance(entry, dict) and "blocks" in entry else _layer
        layers += read(entry, fields.get("rate"), f"{where}: layers[{number}]")
    reported = {}
    for number, entry in enumerate(fields.get("reported", [])):
        paper = read_fields(entry, {"mj": NUMBER, "source": TEXT}, f"{where}: reported[{number}]")
        reported[paper["source"]] = float(paper["mj"])
    bits = fields.get("weight_bits", FLOAT_WEIGHTS)
    return SpikingNetwork(fields["name"], fields["time_steps"], bits, tuple(layers), reported, fields)


def _layer(entry: Any, rate: float | None, where: str) -> Iterator[NetworkLayer]:
    read_fields(entry, _LAYER, where, _LAYER_OPTIONS)
    given = entry.get("input", "spikes")
    at = 1.0 if given == "real" else _rate(entry.get("rate", rate), where)
    macs, neurons = math.prod(entry["macs"]), math.prod(entry.get("neurons", [0]))
    yield NetworkLayer(entry["operator"], entry["part"], macs, at, given, neurons)


def _blocks(entry: Any, rate: float | None, where: str) -> Iterator[NetworkLayer]:
    read_fields(entry, _BLOCKS, where, _BLOCKS_OPTIONS)
    blocks, tokens, width, ratio = entry["blocks"], entry["tokens"], entry["width"], entry.get("mlp_ratio", 4)
    rates = read_fields(entry.get("rates", {}), {}, f"{where}: rates", dict.fromkeys(OPERATORS, SHARE))
    source, projections = entry.get("input", "spikes"), entry.get("projections", 3)
    square, values = tokens * width**2, tokens * width
    mixed = {"pairs": tokens * values, "linear": square // entry["heads"], "none": 0}[entry.get("mixing", "pairs")]
    shapes: tuple[tuple[str, NetworkPart, int, Input, int], ...] = (
        ("qkv", "attention", projections * square, source, projections * values),
        ("relation", "attention", mixed, "spikes", 0),
        ("value", "attention", mixed, "spikes", values),
        ("proj", "attention", square, "spikes", values),
        ("fc1", "mlp", ratio * square, source, ratio * values),
        ("fc2", "mlp", ratio * square, "spikes", values),
    )
    for operator, part, macs, fed, neurons in shapes:
        if macs:
            at = _rate(rates.get(operator, rate), f"{where}: rates.{operator}")
            yield NetworkLayer(operator, part, blocks * macs, at, fed, blocks * neurons)


def _rate(value: float | None, where: str) -> float:
    if value is None:
        raise LapisError(f"{where} has no firing rate; give it, or one `rate` for the whole network")
    return float(value)
