"""W = g_h sum_c min(q, k): how many spikes of two rate trains coincide (Spikformer, Spikingformer, Max-Former)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class SsaRule(Rule):
    """The l1 distance, the sums |q| and |k| of each token, and two additions per pair; no exponential, no row scale."""

    equation = "W_ij = g_h (|q_i| + |k_j| - D_ij) / 2 = g_h sum_c min(q_ic, k_jc), D_ij = sum_c |q_ic - k_jc|"
    system = "Spikformer, Spikingformer, Max-Former"
    origin = "adapted"
    adapted = "a code is read as its rate train; one readout replaces a LIF neuron in each of T steps"
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        yield from mixing.code_sums()
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "accumulate", 2 * mixing.pairs)
            yield mixing.fixed("gain", "shift", mixing.neurons)
