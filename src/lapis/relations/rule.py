"""What Lapis must know of a relation where torch is not loaded: its operations and its deployed form.

The torch module of a relation computes it (`lapis.nn.relations`); its rule answers everybody else. A relation that
differs from the base class says so in a subclass, and nothing outside it asks for a relation by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from lapis.errors import LapisError

if TYPE_CHECKING:
    from lapis.config import LapisConfig
    from lapis.energy.operations import Mixing, Operation

# leak:  A = beta_h**D, stored as one leak per head.
# table: A = table[h][D], stored as one number per head and distance.
# shift: A = 2**-shift[h][D], stored as one number of halvings per head and distance.
Stored = Literal["leak", "table", "shift"]
# paper: the paper's own ablation.   ours: proposed here.   faithful: another system's rule as its authors compute it,
# on our codes.   adapted: another system's rule, changed where our one spike per neuron asks for it.
Origin = Literal["paper", "ours", "faithful", "adapted"]


class Rule:
    """One relation by its name. The base class is a sum over channels of |q - k| or alike, then a lookup per pair."""

    # Its equation in one line, the system whose rule it is, and how close to that system's rule it is.
    equation = ""
    system = ""
    origin: Origin = "ours"
    # What differs from the rule of its system; nothing where it is the same.
    adapted = ""
    # Whether queries and keys are compared without multiplications, and whether the weights of a row sum to about one.
    multiplication_free = True
    normalised = True
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
        if self.stored != "leak" and config.relative_position:
            return (
                f"relation={self.name!r} is stored as a table by distance, which has no place for the position delays "
                f"of style={config.style!r}; use style='vit'"
            )
        return None

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
        yield from mixing.code_sums()
        yield mixing.fixed("relation", "compare", mixing.channels)
        yield mixing.fixed("affinity", "affinity", mixing.pairs)
        yield mixing.fixed("row sum", "row_sum", mixing.pairs)
        yield mixing.fixed("row scale", "row_exponent", mixing.rows)
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
            yield mixing.fixed("affinity", "lookup", mixing.pairs)
            if mixing.convention.everything_else:
                yield from mixing.row_sum_and_position()
            scaling: Literal["scale", "shift"] = "scale" if mixing.config.row_scale == "exact" else "shift"
            yield mixing.fixed("row scale", scaling, mixing.pairs)

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        """The values weighted and summed, N^2 D."""
        yield mixing.values()
