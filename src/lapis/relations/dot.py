"""ln A = q . k / sqrt(C): the attention of dense transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Origin, Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class DotRule(Rule):
    """N^2 D multiplications and a softmax."""

    equation = "W_ij = softmax_j(q_i . k_j / sqrt C)"
    system = "dense transformers"
    origin: Origin = "paper"
    multiplication_free = False
    ignores_shifts = False

    def comparison(self, mixing: Mixing) -> Operation:
        return mixing.fixed("relation", "mac", mixing.channels)

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        return mixing.softmax()
