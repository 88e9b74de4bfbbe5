"""A = 2^-round(D / m_h), D = sum_c |q - k|: the Laplacian in powers of two, which needs no table and no exponential."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.rule import Rule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation


class Laplacian2Rule(Rule):
    """Additions for the distance, a shift per pair for the affinity; with power-of-two rows values are shifted too."""

    equation = "W_ij = rowscale 2^-round(D_ij / m_h), D_ij = sum_c |q_ic - k_jc|"
    system = "Lapis"
    stored = "shift"
    needs_codes = True

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "shift", mixing.pairs)
            if mixing.convention.everything_else:
                yield from mixing.row_sum_and_position()
            yield mixing.fixed("row scale", "scale" if mixing.config.row_scale == "exact" else "shift", mixing.pairs)

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.config.row_scale == "exact":
            return super().values(mixing)
        return mixing.shifted_values()
