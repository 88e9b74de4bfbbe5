"""y_i = g_h k_i [|q_i| >= theta_h] in the first blocks, SSA in the others (QKFormer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lapis.relations.ssa import SsaRule

if TYPE_CHECKING:
    from lapis.energy.operations import Mixing, Operation

# The share of blocks with Q-K token attention: 3 of 10 in QKFormer.
EARLY_SHARE = 0.3


def early_blocks(depth: int) -> int:
    """How many blocks at the start of a network mask their keys instead of mixing tokens."""
    return round(EARLY_SHARE * depth)


class QkFormerRule(SsaRule):
    """Early blocks: N D additions as queries fire, N D for the keys that pass, and no values. Later ones: SSA."""

    equation = "early blocks: y_i = g_h k_i [|q_i| >= theta_h]; later blocks: ssa"
    system = "QKFormer"
    adapted = (
        "a code is read as its rate train; theta_h is learned; in early blocks the weights of v exist and are not used"
    )

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.block >= early_blocks(mixing.config.depth):
            yield from super().operations(mixing)
            return
        yield mixing.driven("relation", mixing.adder, mixing.rate("q"), mixing.neurons)
        yield mixing.driven("value", mixing.adder, mixing.rate("k"), mixing.neurons)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)

    def projections(self, mixing: Mixing) -> int:
        return 2 if mixing.block < early_blocks(mixing.config.depth) else 3
