"""What Lapis must know of a relation where torch is not loaded: its operations, its deployed form, and the registry.

The torch module of a relation computes it (`lapis.nn.relations`); its rule answers everybody else. A relation that
differs from the base class says so in a subclass, and nothing outside it asks for a relation by name.

Another package adds a relation by calling `lapis.nn.register_relation` when it is imported. If it also names that
module as an entry point of the group `lapis.relations`, under the relation's name, every command knows the relation
without an import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from lapis.errors import LapisError

if TYPE_CHECKING:
    from lapis.config import LapisConfig
    from lapis.energy.operations import Mixing, Operation

__all__ = ["PACKED", "DotRule", "Rule", "TableRule", "names", "register", "rule_of"]

# leak:  A = beta_h**D, stored as one leak per head.
# table: A = table[h][D], stored as one number per head and distance.
Stored = Literal["leak", "table"]
Comparison = Literal["l1", "dot"]


class Rule:
    """One relation by its name. The base class is a sum over channels of |q - k| or alike, then a lookup per pair."""

    # Its equation in one line, and whether the weights of a row sum to about one.
    equation = ""
    normalised = True
    # What a deployed network compares codes by: the sum of |q - k|, or how far q . k lies below the largest of its row.
    compared_by: Comparison = "l1"
    # How a packed file stores the affinity of every l1 distance of codes; None: there is no spiking form.
    stored: Stored | None = None
    # Whether it compares codes and has no meaning for the real values of a network without quantizers.
    needs_codes = False
    # Whether a constant added to all queries and keys changes nothing, as with every distance.
    ignores_shifts = True
    # Whether a bias for the relative position of two tokens has a place in it (style beit).
    takes_positions = True
    # Whether a network with it can be trained; a stored table alone cannot.
    trained = True

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def packed_name(self) -> str:
        """The relation that a packed file names: a table needs no other name, so any machine can run it."""
        return "table" if self.stored == "table" else self.name

    def refusal(self, config: LapisConfig) -> str | None:
        """Why a network of `config` has no spiking form because of this relation, and the way out; None if it has."""
        if self.stored is None:
            return f"relation={self.name!r} has no spiking form; fine-tune with relation='laplacian', then convert"
        if config.relative_position and (self.stored != "leak" or self.compared_by == "dot"):
            return f"relation={self.name!r} has no place for the position delays of style='beit'; use style='vit'"
        return None

    def largest_distance(self, config: LapisConfig) -> int:
        """The largest distance of the codes of a query and a key."""
        return config.head_width * (config.window - config.low("q"))

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        """What one block spends between q, k, v and the mixed values, in order."""
        if mixing.convention.circuits:
            yield from self.circuits(mixing)
            return
        yield self.comparison(mixing)
        yield from self.affinities(mixing)
        yield from self.values(mixing)

    def circuits(self, mixing: Mixing) -> Iterator[Operation]:
        """The uses of each circuit of a deployed head. Its lanes see every pair and channel, silent or not."""
        if self.stored is None:
            raise LapisError(
                f"relation={self.name!r} has no circuits to price; use relation='laplacian', or another convention"
            )
        if self.compared_by == "dot":
            yield mixing.products()
        else:
            yield from mixing.code_sums()
            yield mixing.fixed("relation", "compare", mixing.channels)
        yield from mixing.row_circuits()
        yield mixing.fixed("value", "weigh", mixing.channels)

    def projections(self, mixing: Mixing) -> int:
        """How many of q, k and v a block needs."""
        return 3

    def comparison(self, mixing: Mixing) -> Operation:
        """N^2 D additions: one per pair and channel, or as the convention counts spikes."""
        config, count = mixing.config, mixing.convention.relation
        if not config.quantize:
            return mixing.fixed("relation", "accumulate", mixing.channels)
        # An ON and an OFF neuron for each value of a signed code: twice the channels.
        dense = mixing.channels * (2 if config.coding.qk == "signed" else 1)
        if count == "integer":
            return mixing.fixed("relation", "integer_accumulate", 2 * mixing.channels)
        if count == "dense":
            return mixing.fixed("relation", "accumulate", dense)
        if count == "subtract_and_add":
            return mixing.fixed("relation", "accumulate", 2 * dense)
        # Of the ON and OFF neurons of a value at most one fires: spikes are rate x channels in every mode.
        deliveries = 2 if count == "delivered" else 1
        return mixing.driven("relation", "accumulate", mixing.rate("q", "k"), deliveries * mixing.channels)

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        """One lookup per pair, and one scaling per pair, a shift where rows are scaled by powers of two."""
        if mixing.convention.lookups_and_scaling:
            yield from mixing.looked_up("lookup")

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        """The values weighted and summed, N^2 D."""
        yield mixing.values()


class LaplacianRule(Rule):
    """Additions and a leak; the only relation whose affinity decays by the same factor in every step."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = sum_c |q_ic - k_jc|"
    stored = "leak"


class DotRule(Rule):
    """N^2 D multiplications: the attention of dense transformers; of codes its softmax is a table and a row scale."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = max_j(q_i . k_j) - q_i . k_j"
    stored: Stored | None = "leak"
    compared_by: Comparison = "dot"
    ignores_shifts = False

    def largest_distance(self, config: LapisConfig) -> int:
        return config.window * super().largest_distance(config)

    def comparison(self, mixing: Mixing) -> Operation:
        return mixing.products()

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        return super().affinities(mixing) if mixing.config.quantize else mixing.softmax()


class GaussianRule(Rule):
    """N^2 D squares, each a multiplication."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = sum_c (q_ic - k_jc)^2"

    def comparison(self, mixing: Mixing) -> Operation:
        return mixing.fixed("relation", "mac", mixing.channels)


class HammingRule(Rule):
    """Counted as the l1 distance, one addition per pair and channel."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = the number of channels with q_ic != k_jc"
    needs_codes = True


class TableRule(Rule):
    """The rule of a relation that you register as a `lapis.nn.TableRelation`."""

    equation = "W_ij = rowscale f_h(D_ij), D_ij = sum_c |q_ic - k_jc|, f_h stored value by value"
    stored = "table"
    needs_codes = True


class PackedTableRule(TableRule):
    """The same in a packed file, which no longer says what the table was trained as."""

    trained = False


ENTRY_POINTS = "lapis.relations"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        LaplacianRule("laplacian"),
        DotRule("dot"),
        GaussianRule("gaussian"),
        HammingRule("hamming"),
        PackedTableRule("table"),
    )
}
_BUILT_IN = tuple(_RULES)
# What a packed file may name: nothing that another package would have to be imported for.
PACKED = tuple(name for name, rule in _RULES.items() if rule.stored is not None and rule.packed_name == name)


def register(rule: Rule) -> None:
    """Make a relation known by the name of its rule; `lapis.nn.register_relation` calls this."""
    if not isinstance(rule.name, str) or not _NAME.fullmatch(rule.name):
        raise LapisError(f"{rule.name!r} cannot name a relation; use lower-case letters, digits and underscores")
    if rule.name in _BUILT_IN:
        raise LapisError(f"a relation {rule.name!r} is already registered: it is built in; choose another name")
    _RULES[rule.name] = rule


def rule_of(name: Any) -> Rule:
    """The rule of a relation; the module of an installed package that offers the name is imported first."""
    if isinstance(name, str) and name not in _RULES:
        for offered in _offered():
            if offered.name != name:
                continue
            try:
                offered.load()
            except Exception as error:  # another package's module may raise anything
                raise LapisError(f"relation={name!r}: {offered.value} cannot be imported: {error}") from error
    if not isinstance(name, str) or name not in _RULES:
        *rest, last = names()
        raise LapisError(
            f"relation={name!r} is unknown; use {', '.join(rest)} or {last}, "
            "or import the package that registers it with lapis.nn.register_relation"
        )
    return _RULES[name]


def names() -> list[str]:
    """Every relation that can be trained: the built-in ones first, then those of other packages."""
    offered = {point.name for point in _offered()}
    others = (offered | _RULES.keys()) - set(_BUILT_IN)
    return [*(name for name in _BUILT_IN if _RULES[name].trained), *sorted(others)]


def _offered() -> Any:
    """The entry points of installed packages; looking for them takes a while, and built-in relations need none."""
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)
