"""y = g_h q (k^T v) on integer codes, in linear order (Spike-driven Transformer V3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class EsdsaRule(Rule):
    """2 N C D products of integers: k^T v, then q times that. Conventions that count spikes count additions."""

    equation = "y_i = g_h q_i (sum_j k_j^T v_j), so W_ij = g_h q_i . k_j"
    system = "Spike-driven Transformer V2, V3"
    origin = "adapted"
    adapted = "T levels for 4; linear layers for its convolutions; g_h, a power of two, for C^-1/2"
    multiplication_free = False
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        for operator, points in (("relation", ("k", "v")), ("value", ("q",))):
            yield mixing.products(operator, mixing.linear_order, *points)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)
