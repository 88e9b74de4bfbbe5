"""ln A = -D / tau_h, D = the number of channels with unequal latencies."""

from lapis.relations.rule import Rule


class HammingRule(Rule):
    """Counted as the l1 distance, one addition per pair and channel."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = the number of channels with q_ic != k_jc"
    system = "Lapis (ablation)"
    origin = "paper"
    needs_codes = True
