"""ln A = -D / tau_h, D = sum_c (q - k)**2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class GaussianRule(Rule):
    """N^2 D squares, each a multiplication."""

    def comparison(self, mixing: Mixing) -> Operation:
        return mixing.fixed("relation", "mac", mixing.channels)
