"""SSA in chunks of steps: a query of one step meets keys of every step of its chunk (STAtten)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class StattenRule(Rule):
    """k^T v in each of T steps, then q times that. Rates are those of first spikes, so this is an upper bound."""

    equation = "y_i = g_h sum_chunks (sum_n q_in) (sum_m sum_j k_jm^T v_jm), n and m the steps of a chunk"
    system = "STAtten"
    origin = "adapted"
    adapted = (
        "a code is read as its rate train of T steps in three chunks; one readout replaces a LIF neuron in each step"
    )
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        every_step = mixing.config.window * mixing.linear_order
        yield mixing.driven("relation", mixing.adder, mixing.rate("k", "v"), every_step)
        yield mixing.driven("value", mixing.adder, mixing.rate("q"), every_step)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)
