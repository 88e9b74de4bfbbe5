"""Conventions: which operations are counted, and as what kind, as different papers on spiking transformers do it.

A figure in millijoules has a meaning only together with the name of its convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lapis.config import nearest
from lapis.energy.costs import Kind
from lapis.errors import LapisError

# dense: every channel of every pair once.   subtract_and_add: the same, as two additions.
# rate: the dense count times the mean activity of q and k.   delivered: one operation for each spike and its N targets.
# integer: one subtraction and one addition of integers per channel, whatever the sign of the codes.
RelationCount = Literal["dense", "subtract_and_add", "rate", "delivered", "integer"]


@dataclass(frozen=True)
class Convention:
    """What is counted, and how; the defaults are the paper's choices."""

    name: str
    counted: str
    relation: RelationCount = "dense"
    # The paper scales the value path by the mean activity of q, k and v; only the spikes of v are delivered there.
    value_by_v_alone: bool = False
    value_kind: Kind = "accumulate"
    # A real readout is a sum of weighted spikes, not a spike: it is multiplied unless a convention accumulates it.
    real_readout_accumulates: bool = False
    lookups_and_scaling: bool = True
    patch_and_head: bool = True
    # Widths of the integers that a quantized network multiplies in these; as floats if nothing is given.
    patch_operands: tuple[int, int] | None = None
    head_operands: tuple[int, int] | None = None
    # Membrane updates, normalisation, residual additions, row sums, position delays, the dense softmax.
    everything_else: bool = False
    # A head by the circuits that compute it, which only tables measured in gates price.
    circuits: bool = False


CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention("paper", "the appendix of the paper; patch embedding and head as FP32 MACs"),
        Convention(
            "full",
            "the paper's, and T membrane updates per neuron, norm, residual, row sums, position; dense: softmax too",
            everything_else=True,
        ),
        Convention(
            "strict",
            "non-binary numbers at full price: the value path as MACs, |q - k| and its sum as two additions",
            relation="subtract_and_add",
            value_kind="mac",
        ),
        Convention(
            "lenient",
            "every operator is rate x dense accumulates, sums of spikes included, as most spiking transformers count",
            relation="rate",
            real_readout_accumulates=True,
        ),
        Convention(
            "deployed",
            "the deployed network's integers by their widths: patch products 8 x 16 bits, head 16 x 16, the rest sums",
            relation="integer",
            value_by_v_alone=True,
            value_kind="integer_accumulate",
            patch_operands=(8, 16),
            head_operands=(16, 16),
        ),
        Convention(
            "synaptic",
            "spikes delivered to a target and nothing else: no lookups, scaling, patch embedding or head",
            relation="delivered",
            value_by_v_alone=True,
            lookups_and_scaling=False,
            patch_and_head=False,
        ),
    )
}


# Not among the others: it needs a table of circuits, and a relation that has them.
GATES = Convention(
    "gates",
    "a head by its circuits: score lane, affinity table, row sum and exponent, value sums; the rest as deployed",
    relation="integer",
    patch_operands=(8, 16),
    head_operands=(16, 16),
    circuits=True,
)


def convention_named(name: str) -> Convention:
    """A convention by its name."""
    known = CONVENTIONS | {GATES.name: GATES}
    if name not in known:
        raise LapisError(f"unknown convention {name!r}; {nearest(name, known)}use {', '.join(known)}")
    return known[name]
