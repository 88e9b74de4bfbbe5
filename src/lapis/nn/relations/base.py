"""The mixing of values by queries and keys: any rule, those that weigh pairs, those that scale rows, dot products.

A relative position is one bias per head and offset, which Lapis stores as an integer delay.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from lapis.config import AFFINITY_BITS, LapisConfig
from lapis.deploy.network import Affinities, Block, Leak
from lapis.errors import LapisError
from lapis.ops.row_scale.eager import narrow_rows, scale_rows
from lapis.ops.tensors import round_half_up
from lapis.positions import offset_count, relative_offsets
from lapis.relations import DotRule, Rule


class RelativePosition(nn.Module):
    """b[h, i, j] by the offset between the patches i and j of a grid, class token first."""

    def __init__(self, grid: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(offset_count(grid), heads))
        # The row of the table for every pair of tokens, (N, N), N = grid**2 + 1.
        self.index = nn.Buffer(torch.from_numpy(relative_offsets(grid)), persistent=False)

    def bias(self) -> Tensor:
        """b (H, N, N), added to the logits of a dot product."""
        return self.table[self.index].permute(2, 0, 1)

    def steps(self, tau: Tensor) -> Tensor:
        """round(tau_h (b_max - b)) for every row of the table: leak steps that put exp(b - b_max) into the membrane.

        Integer-valued, at least 0; the backward pass ignores the rounding (straight-through).
        """
        steps = tau * (self.table.amax(dim=0) - self.table)
        return steps + (round_half_up(steps) - steps).detach()

    def delay(self, tau: Tensor) -> Tensor:
        """The leak steps of every pair, (H, N, N)."""
        return self.steps(tau)[self.index].permute(2, 0, 1)


class Mixer(nn.Module):
    """Queries, keys and values (B, H, N, C)  ->  the readout (B, H, N, C).

    Parameters of the module itself (not of modules inside it) are trained with the learning rate of quantizer steps.
    """

    # Whether queries and keys come as codes, or as the values that the codes stand for; and the same of the values.
    on_codes: ClassVar[bool]
    values_on_codes: ClassVar[bool] = False
    # Its operations and its deployed form, for those who do not load torch.
    rule: ClassVar[type[Rule]] = Rule
    # Whether its parameters have been found from data; a rule that finds nothing from data is ready at once.
    is_ready: bool = True
    # Biases by the offset between two tokens, in a rule that knows them.
    position: RelativePosition | None

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.position = None

    @classmethod
    def for_block(cls, config: LapisConfig, block: int) -> Mixer:
        """The mixer of one block; the same in all blocks unless a rule says otherwise."""
        return cls(config)

    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        """Find parameters before training; `readout` is what softmax attention makes of q, k and v unquantized."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The readout (B, H, N, C)."""
        raise NotImplementedError

    def fold(self, distances: int) -> Leak | Affinities:
        """The affinities of the l1 distances 0..distances-1 as a deployed network stores them."""
        raise LapisError(f"{type(self).__name__} has no deployed form; use relation=laplacian or a TableRelation")

    def unfold(self, block: Block) -> None:
        """Set the parameters from a block of a deployed network: the inverse of `fold`."""
        raise LapisError(f"{type(self).__name__} cannot be set from a deployed network; start from its checkpoint")


class Pairwise(Mixer):
    """y_i = sum_j W_ij v_j: a rule that gives every pair of a query and a key a weight."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """W (B, H, N, N)."""
        raise NotImplementedError

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.weights(q, k) @ v


class Relation(Pairwise):
    """W_ij = the affinities A_ij scaled by rows, from ln A_ij.

    A relation of your own gives `forward`, and `rule` where its operations are not those of an l1 distance.
    """

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.row_scale, self.affinity_bits = config.row_scale, config.affinity_bits
        self.position = RelativePosition(config.grid, config.heads) if config.relative_position else None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, N, C) twice  ->  (B, H, N, N) log affinities."""
        raise NotImplementedError

    @property
    def narrow(self) -> bool:
        """Whether affinities have fewer bits than usual, so few that training must see it."""
        return self.row_scale == "pow2" and self.affinity_bits < AFFINITY_BITS

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        log_affinity = self(q, k)
        if self.narrow:
            return narrow_rows(log_affinity, self.affinity_bits)
        return scale_rows(log_affinity, self.row_scale)


class DotProduct(Relation):
    """ln A_ij = q_i . k_j / sqrt(C) + b_ij of values: the attention of dense transformers."""

    on_codes = False
    rule: ClassVar[type[Rule]] = DotRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.scale = config.head_width**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = (q * self.scale) @ k.transpose(-1, -2)
        return scores if self.position is None else scores + self.position.bias()
