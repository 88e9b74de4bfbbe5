"""The operations of a network under a convention, before costs: one entry per block, operator and kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.energy import counts
from lapis.energy.activity import Activities
from lapis.energy.conventions import Convention
from lapis.energy.costs import PJ_PER_MJ, Kind
from lapis.energy.counts import LINEAR, Operator
from lapis.relations import rule_of
from lapis.trace import Point

NetworkPart = Literal["patch", "attention", "mlp", "stream", "head"]

# off: arithmetic alone, as in the paper.   once: every weight is fetched once per image, from the large memory.
# each: every operation on a weight fetches it from the memory beside the adder. A real chip lies between the two.
Memory = Literal["off", "once", "each"]
MEMORY: tuple[Memory, ...] = get_args(Memory)

_PART: dict[Operator, NetworkPart] = {of: "mlp" if of in ("fc1", "fc2") else "attention" for of in counts.OPERATORS}

# LayerNorm, per value: add to the mean, subtract it, add its square to the variance, scale and shift.
_NORM_ACCUMULATES = 2
_NORM_MACS = 2


@dataclass(frozen=True)
class Operation:
    """`count` operations of one kind. `dense` is the count if every neuron fired; `driven` where spikes decide it.

    energy = count x cost; activity = count / dense where spikes decide the count.
    """

    operator: str
    part: NetworkPart
    block: int | None
    kind: Kind
    count: float
    dense: int
    driven: bool = False
    # The widths of two integers that are multiplied.
    operands: tuple[int, int] = (8, 8)
    cost_pj: float = 0.0

    @property
    def activity(self) -> float | None:
        return self.count / self.dense if self.driven else None

    @property
    def energy_mj(self) -> float:
        return self.count * self.cost_pj / PJ_PER_MJ

    def to_dict(self) -> dict[str, Any]:
        names = ("operator", "part", "block", "activity", "count", "kind", "cost_pj", "energy_mj")
        return {name: getattr(self, name) for name in names}


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

    def fixed(self, operator: str, kind: Kind, count: int, operands: tuple[int, int] = (8, 8)) -> Operation:
        """Operations that do not depend on spikes."""
        return _fixed(operator, "attention", self.block, kind, count, operands)

    def driven(self, operator: str, kind: Kind, rate: float, dense: int) -> Operation:
        """Operations that spikes cause: `dense` of them if every neuron fired."""
        return Operation(operator, "attention", self.block, kind, rate * dense, dense, driven=True)

    def products(self) -> Operation:
        """Queries times keys, N^2 D: products of codes, or of floats where there are none."""
        if not self.config.quantize:
            return self.fixed("relation", "mac", self.channels)
        bits = counts.code_bits(self.config, "q")
        return self.fixed("relation", "dot" if self.convention.circuits else "product", self.channels, (bits, bits))

    def values(self) -> Operation:
        """The values weighted and summed: N^2 D, driven by spikes where there are any."""
        dense = counts.dense_block(self.config)["value"]
        if not self.config.quantize:
            return self.fixed("value", "mac", dense)
        rate = self.rate("v") if self.convention.value_by_v_alone else self.rate("q", "k", "v")
        return self.driven("value", self.convention.value_kind, rate, dense)

    def code_sums(self) -> Iterator[Operation]:
        """|q| and |k| of every token, 2 N D additions as they fire."""
        yield self.driven("code sums", self.adder, self.rate("q", "k"), 2 * self.neurons)

    def softmax(self) -> Iterator[Operation]:
        """The paper does not count a softmax; where all is counted, it is a lookup, a sum and a scaling per pair."""
        if self.convention.everything_else:
            yield self.fixed("softmax", "lookup", self.pairs)
            yield from self.row_sum_and_position()
            yield self.fixed("row scale", "scale", self.pairs)

    def looked_up(self, kind: Kind) -> Iterator[Operation]:
        """An affinity and a scaling per pair, a shift where rows are scaled by powers of two."""
        yield self.fixed("affinity", kind, self.pairs)
        if self.convention.everything_else:
            yield from self.row_sum_and_position()
        yield self.fixed("row scale", "scale" if self.config.row_scale == "exact" else "shift", self.pairs)

    def row_circuits(self) -> Iterator[Operation]:
        """An affinity and its sum per pair, an exponent per row, as a deployed head computes them."""
        yield self.fixed("affinity", "affinity", self.pairs)
        yield self.fixed("row sum", "row_sum", self.pairs)
        yield self.fixed("row scale", "row_exponent", self.rows)

    def row_sum_and_position(self) -> Iterator[Operation]:
        yield self.fixed("row sum", "accumulate", self.pairs)
        if self.config.relative_position:
            yield self.fixed("position", "accumulate", self.pairs)


def spiking(config: LapisConfig, rho: Activities, chosen: Convention) -> list[Operation]:
    """What one image costs the spiking network."""
    rule = rule_of(config.relation)
    linear: Kind = "accumulate" if config.weight_bits == FLOAT_WEIGHTS else "integer_accumulate"

    def layer(operator: Operator, block: int, dense: int) -> Operation:
        """A linear layer: additions as its inputs fire, products where they are real."""
        point = counts.INPUTS[operator][0]
        real = point == "readout" and config.readout != "spikes"
        if not config.quantize or (real and not chosen.real_readout_accumulates):
            return _fixed(operator, _PART[operator], block, "mac", dense)
        rate = rho.rates.get((block, point), 1.0) if real else rho.at(block, point)
        return Operation(operator, _PART[operator], block, linear, rate * dense, dense, driven=True)

    def operations(block: int) -> Iterator[Operation]:
        mixing, dense = Mixing(config, block, rho, chosen), counts.dense_block(config)
        yield layer("qkv", block, dense["qkv"] // 3 * rule.projections(mixing))
        yield from rule.operations(mixing)
        yield from (layer(operator, block, dense[operator]) for operator in LINEAR if operator != "qkv")
        if chosen.everything_else and config.quantize:
            yield from _membranes(config, block, linear)

    return _whole(config, chosen, operations)


def quantized(config: LapisConfig, chosen: Convention, rho: Activities | None = None) -> list[Operation]:
    """What one image costs the same network as a plain quantized one: dot products of codes of the same width.

    With `rho`, a product is skipped where its code is zero, in scores where that of the query is. Its affinities are
    looked up and its rows scaled as ours are.
    """
    kind: Kind = "mac" if config.weight_bits == FLOAT_WEIGHTS else "dot" if chosen.circuits else "product"
    other = {"relation": counts.code_bits(config, "k"), "value": config.affinity_bits}

    def operations(block: int) -> Iterator[Operation]:
        for operator, dense in counts.dense_block(config).items():
            point = counts.INPUTS[operator][0]
            rate = 1.0 if rho is None else rho.rates.get((block, point), 1.0)
            operands = (other.get(operator, config.weight_bits), counts.code_bits(config, point))
            yield Operation(operator, _PART[operator], block, kind, rate * dense, dense, rho is not None, operands)
        mixing = Mixing(config, block, Activities({}), chosen)
        if chosen.circuits:
            yield from mixing.row_circuits()
        elif chosen.lookups_and_scaling:
            yield from mixing.looked_up("lookup")

    return _whole(config, chosen, operations)


def dense(config: LapisConfig, chosen: Convention) -> list[Operation]:
    """What one image costs the dense network of the same shape; its softmax is counted only where all is counted."""

    def operations(block: int) -> Iterator[Operation]:
        for operator, count in counts.dense_block(config).items():
            yield _fixed(operator, _PART[operator], block, "mac", count)
        yield from Mixing(config, block, Activities({}), chosen).softmax()

    return _whole(config, replace(chosen, patch_operands=None, head_operands=None), operations)


def _whole(
    config: LapisConfig, chosen: Convention, operations: Callable[[int], Iterable[Operation]]
) -> list[Operation]:
    """A network: the operations of each block, its residual stream, and the layers around the blocks.

    These are dense in every network; only a quantized one multiplies integers there.
    """

    def end(name: str, part: NetworkPart, macs: int, operands: tuple[int, int] | None) -> list[Operation]:
        if not chosen.patch_and_head:
            return []
        if operands is None or not config.quantize:
            return [_fixed(name, part, None, "mac", macs)]
        return [_fixed(name, part, None, "product", macs, operands)]

    counted = end("patch embedding", "patch", counts.patch_embedding(config), chosen.patch_operands)
    if chosen.everything_else and not config.relative_position:
        counted.append(_fixed("position", "stream", None, "accumulate", config.tokens * config.width))
    for block in range(config.depth):
        counted += operations(block)
        if chosen.everything_else:
            counted += _norm(config.width, block, 2 * config.tokens)
            counted.append(_fixed("residual", "stream", block, "accumulate", 2 * config.tokens * config.width))
    counted += end("head", "head", counts.head(config), chosen.head_operands)
    if chosen.everything_else:
        if config.mean_pooling:
            counted.append(_fixed("pool", "stream", None, "accumulate", config.grid**2 * config.width))
        counted += _norm(config.width, None, 1)
    return counted


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


def _norm(width: int, block: int | None, tokens: int) -> Iterator[Operation]:
    yield _fixed("norm", "stream", block, "accumulate", _NORM_ACCUMULATES * tokens * width)
    yield _fixed("norm", "stream", block, "mac", _NORM_MACS * tokens * width)
    yield _fixed("norm", "stream", block, "scale", tokens)


def fetches(config: LapisConfig, counted: list[Operation], memory: Memory, float_bytes: int) -> Iterator[Operation]:
    """Bytes of weights read for the operations `counted`: each weight once per image, or once per operation on it."""
    if memory == "off":
        return
    body = float_bytes if config.weight_bits == FLOAT_WEIGHTS else config.weight_bits / 8
    stored: dict[str, float] = {of: counts.dense_block(config)[of] // config.tokens * body for of in LINEAR}
    stored["patch embedding"] = counts.patch_embedding(config) // config.grid**2 * float_bytes
    stored["head"] = counts.head(config) * float_bytes
    kind: Kind = "global_byte" if memory == "once" else "local_byte"
    for item in counted:
        if item.operator in stored:
            width = body if item.operator in LINEAR else float_bytes
            read = stored[item.operator] if memory == "once" else item.count * width
            yield Operation(f"memory: {item.operator}", item.part, item.block, kind, read, round(read))


def _fixed(
    operator: str, part: NetworkPart, block: int | None, kind: Kind, count: int, operands: tuple[int, int] = (8, 8)
) -> Operation:
    return Operation(operator, part, block, kind, float(count), count, operands=operands)
