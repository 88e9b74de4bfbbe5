"""W = g_h sum over steps of q k + a_h (1 - q)(1 - k) on rate trains: silence in common counts too (alpha-XNOR)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.ssa import SsaRule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class XnorRule(SsaRule):
    """As SSA, and one scaling by the learned a_h per pair."""

    equation = "W_ij = g_h (a_h T C + (1 - a_h)/2 (|q_i| + |k_j|) - (1 + a_h)/2 D_ij), D_ij = sum_c |q_ic - k_jc|"
    system = "alpha-XNOR"
    adapted = "a code is read as its rate train; one readout replaces a LIF neuron in each of T steps; a_h is learned"

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        yield from super().affinities(mixing)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "scale", mixing.pairs)
