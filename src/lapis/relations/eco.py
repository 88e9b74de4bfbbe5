"""ln A = -sum_c |q - k| / sqrt(C) of values: the Laplacian without a learned time constant (EcoTransformer)."""

from lapis.relations.rule import Rule


class EcoRule(Rule):
    """The operations of the Laplacian."""

    equation = "W_ij = rowscale exp(-s D_ij / sqrt C), D_ij = sum_c |q_ic - k_jc|, s the step of q and k"
    system = "EcoTransformer"
    origin = "faithful"
