"""What Lapis must know of these rules without torch: equations, origins, and operations for the energy model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lapis.relations import DotRule, Rule, TableRule

if TYPE_CHECKING:
    from lapis.energy import Mixing, Operation

# ours: of Lapis.   faithful: another system's rule as its authors compute it, on our codes.   adapted: another system's
# rule, changed where our one spike per neuron asks for it.
Origin = Literal["ours", "faithful", "adapted"]
# The share of blocks with Q-K token attention: 3 of 10 in QKFormer.
EARLY_SHARE = 0.3


def early_blocks(depth: int) -> int:
    """How many blocks of QKFormer mask their keys instead of mixing tokens."""
    return round(EARLY_SHARE * depth)


def linear_order(mixing: Mixing) -> int:
    """N C D: products of k^T v, or of q with it, over all heads."""
    return mixing.neurons * mixing.config.head_width


def shifted_values(mixing: Mixing) -> Iterator[Operation]:
    """The values weighted by powers of two and summed: a shift and an addition wherever others multiply and add."""
    values = mixing.values()
    yield replace(values, operator="value shift", kind="shift")
    yield replace(values, kind="accumulate" if values.kind == "mac" else values.kind)


class SystemRule(Rule):
    """A rule, the system that it comes from, and what differs from the rule of that system."""

    system = ""
    origin: Origin = "ours"
    adapted = ""


class Laplacian2Rule(SystemRule, TableRule):
    """Additions for the distance, a shift per pair for the affinity; with power-of-two rows values are shifted too."""

    equation = "W_ij = rowscale 2^-round(D_ij / m_h), D_ij = sum_c |q_ic - k_jc|"
    system = "Lapis"

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.convention.lookups_and_scaling:
            yield from mixing.looked_up("shift")

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        return super().values(mixing) if mixing.config.row_scale == "exact" else shifted_values(mixing)


class EcoRule(SystemRule):
    """The operations of the Laplacian."""

    equation = "W_ij = rowscale exp(-s D_ij / sqrt C), D_ij = sum_c |q_ic - k_jc|, s the step of q and k"
    system = "EcoTransformer"
    origin = "faithful"


class SignKeysRule(SystemRule):
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


class ShiftSoftmaxRule(SystemRule, DotRule):
    """N^2 D multiplications for the scores; from there on only shifts and additions, the sum of values included."""

    equation = (
        "W_ij = 2^(S_ij - max_j S_ij) / nearest_pow2(sum_j 2^(S_ij - max_j S_ij)), S_ij = ceil(q_i . k_j / sqrt C)"
    )
    system = "Sorbet"
    origin = "faithful"
    stored = None

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "shift", mixing.pairs)
            if mixing.convention.everything_else:
                yield from mixing.row_sum_and_position()
            yield mixing.fixed("row scale", "shift", mixing.pairs)

    def values(self, mixing: Mixing) -> Iterator[Operation]:
        return shifted_values(mixing)


class CodedDotRule(SystemRule, DotRule):
    """N^2 D multiplications, and a lookup and a scaling per pair as for every softmax that is spelled out."""

    equation = "W_ij = Q(softmax_j(q_i . k_j / sqrt C)), Q a learned ladder of T levels"
    system = "SpikeZIP-TF, MST"
    origin = "faithful"
    adapted = "the quantized network that these systems convert; not their simulation over hundreds of steps"
    stored = None
    needs_codes = True

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        return Rule.affinities(self, mixing)


class SsaRule(SystemRule):
    """The l1 distance, the sums |q| and |k| of each token, and two additions per pair; no exponential, no row scale."""

    equation = "W_ij = g_h (|q_i| + |k_j| - D_ij) / 2 = g_h sum_c min(q_ic, k_jc), D_ij = sum_c |q_ic - k_jc|"
    system = "Spikformer, Spikingformer, Max-Former"
    origin = "adapted"
    adapted = "a code is read as its rate train; one readout replaces a LIF neuron in each of T steps"
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        yield from mixing.code_sums()
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "accumulate", 2 * mixing.pairs)
            yield mixing.fixed("gain", "shift", mixing.neurons)


class XnorRule(SsaRule):
    """As SSA, and one scaling by the learned a_h per pair."""

    equation = "W_ij = g_h (a_h T C + (1 - a_h)/2 (|q_i| + |k_j|) - (1 + a_h)/2 D_ij), D_ij = sum_c |q_ic - k_jc|"
    system = "alpha-XNOR"
    adapted = "a code is read as its rate train; one readout replaces a LIF neuron in each of T steps; a_h is learned"

    def affinities(self, mixing: Mixing) -> Iterator[Operation]:
        yield from super().affinities(mixing)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("affinity", "scale", mixing.pairs)


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


class EsdsaRule(SystemRule):
    """2 N C D products of integers: k^T v, then q times that. Conventions that count spikes count additions."""

    equation = "y_i = g_h q_i (sum_j k_j^T v_j), so W_ij = g_h q_i . k_j"
    system = "Spike-driven Transformer V2, V3"
    origin = "adapted"
    adapted = "T levels for 4; linear layers for its convolutions; g_h, a power of two, for C^-1/2"
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        for operator, points in (("relation", ("k", "v")), ("value", ("q",))):
            if mixing.convention.relation in ("rate", "delivered"):
                yield mixing.driven(operator, "accumulate", mixing.rate(*points), linear_order(mixing))
            else:
                integers = mixing.convention.relation == "integer"
                yield mixing.fixed(operator, "product" if integers else "mac", linear_order(mixing), (8, 16))
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)


class SdsaRule(SystemRule):
    """N D additions for the sums of coinciding spikes, as keys fire, and N D for the queries that pass."""

    equation = "y_i = g_h q_i [sum_j min(k_jc, v_jc) >= theta_c]"
    system = "Spike-driven Transformer V1"
    origin = "adapted"
    adapted = (
        "a code is read as its rate train; theta_c is learned, where the fixed threshold .5 makes an OR of all tokens"
    )
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        yield mixing.driven("relation", mixing.adder, mixing.rate("k"), mixing.neurons)
        yield mixing.driven("value", mixing.adder, mixing.rate("q"), mixing.neurons)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)


class StattenRule(SystemRule):
    """k^T v in each of T steps, then q times that. Rates are those of first spikes, so this is an upper bound."""

    equation = "y_i = g_h sum_chunks (sum_n q_in) (sum_m sum_j k_jm^T v_jm), n and m the steps of a chunk"
    system = "STAtten"
    origin = "adapted"
    adapted = (
        "a code is read as its rate train of T steps in three chunks; one readout replaces a LIF neuron in each step"
    )
    normalised = False
    needs_codes = True
    ignores_shifts = False
    takes_positions = False

    def operations(self, mixing: Mixing) -> Iterator[Operation]:
        every_step = mixing.config.window * linear_order(mixing)
        yield mixing.driven("relation", mixing.adder, mixing.rate("k", "v"), every_step)
        yield mixing.driven("value", mixing.adder, mixing.rate("q"), every_step)
        if mixing.convention.lookups_and_scaling:
            yield mixing.fixed("gain", "shift", mixing.neurons)
