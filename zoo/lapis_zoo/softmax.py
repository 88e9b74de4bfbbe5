"""Rules whose weights are a softmax, or nearly: EcoTransformer, Otters, Sorbet, SpikeZIP-TF and MST."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import LapisConfig
from lapis.nn import ActivationQuantizer, DotProduct, Relation
from lapis_zoo.rules import CodedDotRule, EcoRule, ShiftSoftmaxRule, SignKeysRule
from lapis_zoo.steps import signs, straight_through


class Eco(Relation):
    """ln A_ij = -sum_c |q_ic - k_jc| / sqrt(C) of values: a Laplacian whose time constant is not learned."""

    on_codes = False
    rule = EcoRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.scale = config.head_width**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        log_a: Tensor = -self.scale * torch.cdist(q, k, p=1)
        return log_a if self.position is None else log_a + self.position.bias()


class SignKeys(DotProduct):
    """ln A_ij = sum_c q_ic sign(k_jc) / sqrt(C), sign = +1 where k > 0, else -1, with slope 1 where |k| <= 1."""

    rule = SignKeysRule

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return super().forward(q, signs(k))


class ShiftSoftmax(DotProduct):
    """W_ij = A_ij / P(sum_j A_ij), A_ij = 2**(S_ij - max_j S_ij), S_ij = ceil(q_i . k_j / sqrt(C)).

    P(x) is the power of two nearest to x, so rows have a mass from 0.75 to below 1.5. ceil and P have the slope 1.
    """

    rule = ShiftSoftmaxRule

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = self(q, k)
        exponents = straight_through(scores.ceil(), scores)
        affinities = torch.exp2(exponents - exponents.detach().amax(dim=-1, keepdim=True))
        total = affinities.sum(dim=-1, keepdim=True)
        return affinities / straight_through(nearest_power(total), total)


def nearest_power(x: Tensor) -> Tensor:
    """The power of two at the least distance from x > 0; of two, the larger one."""
    mantissa, exponent = torch.frexp(x)  # mantissa in [1/2, 1)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa < 0.75).to(exponent.dtype))


class CodedDot(DotProduct):
    """W_ij = Q(softmax_j(q_i . k_j / sqrt(C))), Q a learned ladder of T steps from 0, the same for all heads."""

    rule = CodedDotRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.ladder = ActivationQuantizer(config.window, "unsigned")

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        """Whether the ladder has its step."""
        return self.ladder.is_ready

    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.ladder.calibrate(torch.softmax(self(q, k), dim=-1))

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        coded: Tensor = self.ladder(torch.softmax(self(q, k), dim=-1))
        return coded
