"""ln A = -D / tau_h, D = sum_c |q - k|: the paper's relation."""

from lapis.relations.rule import Rule


class LaplacianRule(Rule):
    """Additions and a leak; the only relation whose affinity decays by the same factor in every step."""

    equation = "W_ij = rowscale exp(-D_ij / tau_h), D_ij = sum_c |q_ic - k_jc|"
    system = "Lapis"
    origin = "paper"
    stored = "leak"
