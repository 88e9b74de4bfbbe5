"""W = Q(softmax(q . k / sqrt C)): a softmax whose weights are codes too (SpikeZIP-TF, MST)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.dot import DotRule
from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class CodedDotRule(DotRule):
    """N^2 D multiplications, and a lookup and a scaling per pair as for every softmax that is spelled out."""

    equation = "W_ij = Q(softmax_j(q_i . k_j / sqrt C)), Q a learned ladder of T levels"
    system = "SpikeZIP-TF, MST"
    origin = "faithful"
    adapted = "the quantized network that these systems convert; not their simulation over hundreds of steps"
    needs_codes = True

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        return Rule.affinities(self, mixing)
