"""W = 2^(S - max S) / 2^round, S = ceil(q . k / sqrt C): a softmax of shifts (Sorbet)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.dot import DotRule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class ShiftSoftmaxRule(DotRule):
    """N^2 D multiplications for the scores; from there on only shifts and additions, the sum of values included."""

    equation = (
        "W_ij = 2^(S_ij - max_j S_ij) / nearest_pow2(sum_j 2^(S_ij - max_j S_ij)), S_ij = ceil(q_i . k_j / sqrt C)"
    )
    system = "Sorbet"
    origin = "faithful"

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "shift", mixing.pairs)
            if mixing.convention.everything_else:
                yield from mixing.row_sum_and_position()
            yield mixing.fixed("row scale", "shift", mixing.pairs)

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        return mixing.shifted_values()
