"""The relation of a query and a key: ln A_ij, and the values mixed by it."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.deploy.network import Affinities, Block, Leak
from lapis.errors import LapisError
from lapis.nn.position import RelativePosition
from lapis.ops.row_scale.eager import scale_rows
from lapis.relations import Rule


class Relation(nn.Module):
    """ln A_ij of queries and keys (B, H, N, C), and the values mixed by it.

    A relation of your own gives `forward`, and `rule` where its operations are not those of an l1 distance. Parameters
    of the module itself (not of modules inside it) are trained with the learning rate of quantizer steps.
    """

    # Whether queries and keys come as codes, or as the values that the codes stand for.
    on_codes: ClassVar[bool]
    # Its operations and its deployed form, for those who do not load torch.
    rule: ClassVar[type[Rule]] = Rule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.row_scale = config.row_scale
        self.position = RelativePosition(config.grid, config.heads) if config.relative_position else None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, N, C) twice  ->  (B, H, N, N) log affinities."""
        raise NotImplementedError

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """sum_j W_ij v_j (B, H, N, C), W the affinities scaled by rows."""
        return scale_rows(self(q, k), self.row_scale) @ v

    def fold(self, distances: int) -> Leak | Affinities:
        """The affinities of the l1 distances 0..distances-1 as a deployed network stores them."""
        raise LapisError(f"{type(self).__name__} has no deployed form; use relation=laplacian or a TableRelation")

    def unfold(self, block: Block) -> None:
        """Set the parameters from a block of a deployed network: the inverse of `fold`."""
        raise LapisError(f"{type(self).__name__} cannot be set from a deployed network; start from its checkpoint")
