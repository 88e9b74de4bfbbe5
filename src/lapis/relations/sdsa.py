"""y_i = g_h q_i [sum_j min(k_j, v_j) >= theta_c]: one bit per channel opens or closes the queries (Spike-driven T.)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class SdsaRule(Rule):
    """N D additions for the sums of coinciding spikes, as keys fire, and N D for the queries that pass."""

    equation = "y_i = g_h q_i [sum_j min(k_jc, v_jc) >= theta_c]"
    system = "Spike-driven Transformer V1"
    origin = "adapted"
    adapted = (
        "a code is read as its rate train; theta_c is learned, where the fixed threshold .5 makes an OR of all tokens"
    )
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        yield mixing.driven("relation", mixing.adder, mixing.rate("k"), mixing.neurons)
        yield mixing.driven("value", mixing.adder, mixing.rate("q"), mixing.neurons)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)
