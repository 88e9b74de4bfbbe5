"""ln A = -D / tau_h, D = sum_c (q - k)**2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class GaussianRule(Rule):
    """N^2 D squares, each a multiplication."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = sum_c (q_ic - k_jc)^2"
    system = "Lapis (ablation)"
    origin = "paper"
    multiplication_free = False

    def comparison(self, mixing: Mixing) -> Operation:
        return mixing.fixed("relation", "mac", mixing.channels)
