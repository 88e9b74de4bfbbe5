"""ln A = sum_c sign(k) q / sqrt(C): a key adds or subtracts the value of a query (Otters)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class SignKeysRule(Rule):
    """One addition or subtraction for each query that fired, and key; then the lookups of the Laplacian."""

    equation = "W_ij = rowscale exp(sum_c q_ic sign(k_jc) / sqrt C), sign = +1 where a key is positive, else -1"
    system = "Otters"
    origin = "adapted"
    adapted = "values keep their codes, where Otters takes their signs; not distilled from a language model"
    ignores_shifts = False

    def comparison(self, mixing: Mixing) -> Operation:
        if not mixing.config.quantize:
            return mixing.fixed("relation", "accumulate", mixing.channels)
        return mixing.driven("relation", mixing.adder, mixing.rate("q"), mixing.channels)
