"""How much the answer of a network suffers from silence, measured block by block and point by point."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.config import MinCodeByPoint
from lapis.nn.model import LapisViT

# Codes that fall silent in a measurement. The answers to fewer differ mostly by rounding that falls another way.
CODES = 4


@torch.no_grad()
def sensitivities(model: LapisViT, images: Tensor, counts: dict[str, Tensor]) -> dict[str, Tensor]:
    """The square root of the divergence of the answers per share of power that is lost, (L,) of each point of `counts`.

    One block and point at a time loses the lowest codes that still fire. A late block seems nearly free when it is
    silent alone, and is not where the blocks before it are silent too; with the square root, between the divergence and
    no weights at all, silence cost least (docs/results.md). counts (L, T + 1): how often each magnitude occurs, as a
    `ActivityCounter` counts them on the same images.
    """
    config = model.config
    first = vars(config.min_code)
    before = F.log_softmax(model.eval()(images).double(), dim=-1)
    found = {}
    for point, table in counts.items():
        levels = torch.arange(table.shape[1], dtype=table.dtype, device=table.device).square()
        rows = []
        for block in range(config.depth):
            min_code = [config.min_code_of(point, each) for each in range(config.depth)]
            start, stop = min_code[block], min(min_code[block] + CODES, config.window)
            min_code[block] = stop
            model.set_min_code(MinCodeByPoint(**{**first, point: tuple(min_code)}))
            after = F.log_softmax(model(images).double(), dim=-1)
            divergence = F.kl_div(after, before, reduction="batchmean", log_target=True).clamp_min(0)
            lost = (table[block] * levels)[start:stop].sum() / (table[block] * levels).sum().clamp_min(1e-12)
            rows.append((divergence / lost.clamp_min(1e-6)).sqrt())
        found[point] = torch.stack(rows).cpu()
    model.set_min_code(config.min_code)
    return found
