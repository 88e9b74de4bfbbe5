"""The rule of Otters: keys are signs."""

from __future__ import annotations

from torch import Tensor

from lapis.nn.relations.dot import DotProduct
from lapis.nn.relations.straight_through import signs
from lapis.relations.sign_keys import SignKeysRule


class SignKeys(DotProduct):
    """ln A_ij = sum_c q_ic sign(k_jc) / sqrt(C), sign = +1 where k > 0, else -1, with slope 1 where |k| <= 1."""

    rule = SignKeysRule

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return super().forward(q, signs(k))
