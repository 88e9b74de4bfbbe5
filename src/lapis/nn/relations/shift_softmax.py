"""The softmax of Sorbet, in powers of two."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.nn.relations.dot import DotProduct
from lapis.nn.relations.straight_through import passed
from lapis.relations.shift_softmax import ShiftSoftmaxRule


class ShiftSoftmax(DotProduct):
    """W_ij = A_ij / P(sum_j A_ij), A_ij = 2**(S_ij - max_j S_ij), S_ij = ceil(q_i . k_j / sqrt(C)).

    P(x) is the power of two nearest to x, so rows have a mass from 0.75 to below 1.5. ceil and P have the slope 1.
    """

    rule = ShiftSoftmaxRule

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = self(q, k)
        exponents = passed(scores.ceil(), scores)
        affinities = torch.exp2(exponents - exponents.detach().amax(dim=-1, keepdim=True))
        total = affinities.sum(dim=-1, keepdim=True)
        return affinities / passed(nearest_power(total), total)


def nearest_power(x: Tensor) -> Tensor:
    """The power of two at the least distance from x > 0; of two, the larger one."""
    mantissa, exponent = torch.frexp(x)  # mantissa in [1/2, 1)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa < 0.75).to(exponent.dtype))
