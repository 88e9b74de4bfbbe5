"""ln A = -D / tau_h, D = sum_c |q - k|: the paper's relation."""

from lapis.relations.rule import Rule


class LaplacianRule(Rule):
    """Additions and a leak; the only relation whose affinity decays by the same factor in every step."""

    stored = "leak"
