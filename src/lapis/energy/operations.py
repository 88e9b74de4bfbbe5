"""The operations of a network under a convention, before costs: one entry per block, operator and kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.energy import counts
from lapis.energy.activity import Activities
from lapis.energy.conventions import Convention
from lapis.energy.costs import Kind
from lapis.energy.counts import LINEAR, Operator
from lapis.relations import rule_of
from lapis.trace import Point

NetworkPart = Literal["patch", "attention", "mlp", "stream", "head"]

# off: arithmetic alone, as in the paper.   once: every weight is fetched once per image, from the large memory.
# each: every operation on a weight fetches it from the memory beside the adder. A real chip lies between the two.
Memory = Literal["off", "once", "each"]
MEMORY: tuple[Memory, ...] = get_args(Memory)

_PART: dict[Operator, NetworkPart] = {
    "qkv": "attention",
    "relation": "attention",
    "value": "attention",
    "proj": "attention",
    "fc1": "mlp",
    "fc2": "mlp",
}

# LayerNorm, per value: add to the mean, subtract it, add its square to the variance, scale and shift.
_NORM_ACCUMULATES = 2
_NORM_MACS = 2


@dataclass(frozen=True)
class Operation:
    """`count` operations of one kind. `dense` is the count if every neuron fired; `driven` where spikes decide it."""

    operator: str
    part: NetworkPart
    block: int | None
    kind: Kind
    count: float
    dense: int
    driven: bool = False


@dataclass(frozen=True)
class Mixing:
    """The mixing of tokens in one block, as the rule of a relation counts it (`lapis.relations.Rule`)."""

    config: LapisConfig
    block: int
    rho: Activities
    convention: Convention

    @property
    def channels(self) -> int:
        """N^2 D: the channels of all pairs of tokens."""
        return counts.dense_block(self.config)["relation"]

    @property
    def pairs(self) -> int:
        """H N^2."""
        return counts.pairs(self.config)

    @property
    def neurons(self) -> int:
        """N D: the channels of all tokens."""
        return self.config.tokens * self.config.width

    @property
    def rows(self) -> int:
        """H N: rows of affinities."""
        return self.config.heads * self.config.tokens

    @property
    def adder(self) -> Literal["accumulate", "integer_accumulate"]:
        """An addition of codes: of integers where the convention counts integers, else of floats, as in the paper."""
        return "integer_accumulate" if self.convention.relation == "integer" else "accumulate"

    def rate(self, *points: Point) -> float:
        """The mean activity at some measuring points."""
        return self.rho.mean(self.block, points)

    def fixed(self, operator: str, kind: Kind, count: int) -> Operation:
        """Operations that do not depend on spikes."""
        return _fixed(operator, "attention", self.block, kind, count)

    def driven(self, operator: str, kind: Kind, rate: float, dense: int) -> Operation:
        """Operations that spikes cause: `dense` of them if every neuron fired."""
        return Operation(operator, "attention", self.block, kind, rate * dense, dense, driven=True)

    def values(self) -> Operation:
        """The values weighted and summed: N^2 D, driven by spikes where there are any."""
        dense = counts.dense_block(self.config)["value"]
        if not self.config.quantize:
            return self.fixed("value", "mac", dense)
        rate = self.rate("v") if self.convention.value_by_v_alone else self.rate("q", "k", "v")
        return self.driven("value", self.convention.value_kind, rate, dense)

    def shifted_values(self) -> Iterator[Operation]:
        """The values weighted by powers of two and summed: a shift and an addition wherever others multiply and add."""
        values = self.values()
        kind: Kind = "accumulate" if values.kind == "mac" else values.kind
        yield replace(values, operator="value shift", kind="shift")
        yield replace(values, kind=kind)

    def code_sums(self) -> Iterator[Operation]:
        """|q| and |k| of every token, 2 N D additions as they fire."""
        yield self.driven("code sums", self.adder, self.rate("q", "k"), 2 * self.neurons)

    def softmax(self) -> Iterator[Operation]:
        """The paper does not count a softmax; where all is counted, it is a lookup, a sum and a scaling per pair."""
        if self.convention.everything_else:
            yield self.fixed("softmax", "lookup", self.pairs)
            yield from self.row_sum_and_position()
            yield self.fixed("row scale", "scale", self.pairs)

    def row_scaling(self) -> Operation:
        """One scaling per pair, a shift where rows are scaled by powers of two."""
        return self.fixed("row scale", "scale" if self.config.row_scale == "exact" else "shift", self.pairs)

    def row_sum_and_position(self) -> Iterator[Operation]:
        yield self.fixed("row sum", "accumulate", self.pairs)
        if self.config.relative_position:
            yield self.fixed("position", "accumulate", self.pairs)


def spiking(config: LapisConfig, rho: Activities, chosen: Convention) -> list[Operation]:
    """What one image costs the spiking network."""
    return [
        *_ends(config, chosen, "patch", chosen.patch_kind),
        *(item for block in range(config.depth) for item in _block(config, block, rho, chosen)),
        *_ends(config, chosen, "head", chosen.head_kind),
    ]


def dense(config: LapisConfig, chosen: Convention) -> list[Operation]:
    """What one image costs the dense network of the same shape."""
    return [
        *_ends(config, chosen, "patch", "mac"),
        *(item for block in range(config.depth) for item in _dense_block(config, block, chosen)),
        *_ends(config, chosen, "head", "mac"),
    ]


def _ends(config: LapisConfig, chosen: Convention, end: Literal["patch", "head"], kind: Kind) -> Iterator[Operation]:
    """The layers around the blocks, dense in every network; only a quantized one has products of another kind."""
    kind = kind if config.quantize else "mac"
    if chosen.patch_and_head:
        macs = counts.patch_embedding(config) if end == "patch" else counts.head(config)
        yield _fixed("patch embedding" if end == "patch" else "head", end, None, kind, macs)
    if chosen.everything_else and end == "patch" and not config.relative_position:
        yield _fixed("position", "stream", None, "accumulate", config.tokens * config.width)
    if chosen.everything_else and end == "head":
        if config.mean_pooling:
            yield _fixed("pool", "stream", None, "accumulate", config.grid**2 * config.width)
        yield from _norm(config.width, None, 1)


def _block(config: LapisConfig, block: int, rho: Activities, chosen: Convention) -> Iterator[Operation]:
    dense = counts.dense_block(config)
    linear: Kind = "accumulate" if config.weight_bits == FLOAT_WEIGHTS else "integer_accumulate"

    def spikes(operator: Operator, kind: Kind, rate: float) -> Operation:
        return Operation(operator, _PART[operator], block, kind, rate * dense[operator], dense[operator], driven=True)

    def macs(operator: Operator) -> Operation:
        return _fixed(operator, _PART[operator], block, "mac", dense[operator])

    quantized = config.quantize
    rule, mixing = rule_of(config.relation), Mixing(config, block, rho, chosen)
    dense["qkv"] = dense["qkv"] // 3 * rule.projections(mixing)
    yield spikes("qkv", linear, rho.at(block, "attention_in")) if quantized else macs("qkv")
    yield from rule.operations(mixing)
    yield _projection(config, block, rho, chosen, linear)
    yield spikes("fc1", linear, rho.at(block, "mlp_in")) if quantized else macs("fc1")
    yield spikes("fc2", linear, rho.at(block, "mlp_hidden")) if quantized else macs("fc2")
    if chosen.everything_else:
        if quantized:
            yield from _membranes(config, block, linear)
        yield from _stream(config, block)


def _projection(config: LapisConfig, block: int, rho: Activities, chosen: Convention, linear: Kind) -> Operation:
    dense = counts.dense_block(config)["proj"]
    if config.quantize and config.readout == "spikes":
        rate = rho.at(block, "readout")
    elif config.quantize and chosen.real_readout_accumulates:
        rate = rho.rates.get((block, "readout"), 1.0)
    else:
        return _fixed("proj", "attention", block, "mac", dense)
    return Operation("proj", "attention", block, linear, rate * dense, dense, driven=True)


def _membranes(config: LapisConfig, block: int, linear: Kind) -> Iterator[Operation]:
    """V += I at each step of the window in front, for the neurons behind the linear layers and the value path."""

    def updates(point: Point, neurons: int) -> int:
        """T of each neuron; before a deadline T - z0 + 1, and one addition for the steps that are left out."""
        min_code = config.min_code_of(point, block)
        return config.tokens * neurons * (config.window - min_code + 1 + (min_code > 1))

    width = config.width
    attention = updates("attention_in", 3 * width) + updates("readout", width)
    yield _fixed("membranes", "attention", block, linear, attention)
    if config.readout == "spikes":
        yield _fixed("readout membranes", "attention", block, "accumulate", updates("v", width))
    mlp = updates("mlp_in", config.hidden) + updates("mlp_hidden", width)
    yield _fixed("membranes", "mlp", block, linear, mlp)


def _stream(config: LapisConfig, block: int) -> Iterator[Operation]:
    """Two normalisations and two residual additions per block."""
    yield from _norm(config.width, block, 2 * config.tokens)
    yield _fixed("residual", "stream", block, "accumulate", 2 * config.tokens * config.width)


def _norm(width: int, block: int | None, tokens: int) -> Iterator[Operation]:
    yield _fixed("norm", "stream", block, "accumulate", _NORM_ACCUMULATES * tokens * width)
    yield _fixed("norm", "stream", block, "mac", _NORM_MACS * tokens * width)
    yield _fixed("norm", "stream", block, "scale", tokens)


def _dense_block(config: LapisConfig, block: int, chosen: Convention) -> Iterator[Operation]:
    """Every operator as multiply-accumulates; the softmax is counted only where all is counted."""
    for operator, macs in counts.dense_block(config).items():
        yield _fixed(operator, _PART[operator], block, "mac", macs)
    yield from Mixing(config, block, Activities({}), chosen).softmax()
    if chosen.everything_else:
        yield from _stream(config, block)


def fetches(config: LapisConfig, counted: list[Operation], memory: Memory, float_bytes: int) -> Iterator[Operation]:
    """Bytes of weights read for the operations `counted`: each weight once per image, or once per operation on it."""
    if memory == "off":
        return
    body = float_bytes if config.weight_bits == FLOAT_WEIGHTS else config.weight_bits / 8
    stored: dict[str, float] = {operator: counts.weights(config, operator) * body for operator in LINEAR}
    stored["patch embedding"] = counts.patch_embedding(config) // config.grid**2 * float_bytes
    stored["head"] = counts.head(config) * float_bytes
    kind: Kind = "global_byte" if memory == "once" else "local_byte"
    for item in counted:
        if item.operator in stored:
            width = body if item.operator in LINEAR else float_bytes
            read = stored[item.operator] if memory == "once" else item.count * width
            yield Operation(f"memory: {item.operator}", item.part, item.block, kind, read, round(read))


def _fixed(operator: str, part: NetworkPart, block: int | None, kind: Kind, count: int) -> Operation:
    return Operation(operator, part, block, kind, float(count), count)
