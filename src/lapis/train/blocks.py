"""The loss of distillation block by block: every span of blocks learns alone, on the teacher's own tokens.

The teacher's tokens x_0 .. x_L are known. A span of blocks l+1 .. l+s gets x_l and must give x_{l+1} .. x_{l+s}.
Gradients stay inside a span, so nothing explodes and nothing drifts, and the deployed form can be trained from the
first step. With a span of one, blocks learn alone; with a span of all blocks the network sees images and also learns
the teacher's answers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lapis.nn.model import LapisViT, Tapped
from lapis.train.objective import logit_distillation


class BlockTerms(NamedTuple):
    """The loss, KL(teacher || student) of the answers, and the error of every block (L,)."""

    loss: Tensor
    logit: Tensor
    errors: Tensor


class BlockObjective(nn.Module):
    """loss = tokens sum_l (e_l + class_token c_l) + logit KL(teacher || student).

    e_l = mean (y_l - x_l)^2 / mean (x_l - x_a)^2: the error of the tokens y_l after block l, relative to what the
    blocks of its span, which starts at the teacher's tokens x_a, have added. c_l is the same of the class token alone:
    it is one of many tokens, and carries the answer. KL is learned only where one span holds all blocks.
    """

    def __init__(
        self, student: LapisViT, span: int, class_token: float, tokens: float, logit: float, temperature: float
    ) -> None:
        super().__init__()
        self.student, self.span = student, min(span, student.config.depth)
        self.class_token, self.tokens, self.logit, self.temperature = class_token, tokens, logit, temperature

    @property
    def is_whole(self) -> bool:
        """Whether one span holds all blocks."""
        return self.span == self.student.config.depth

    def forward(self, images: Tensor, teacher: Tapped) -> BlockTerms:
        """`teacher` has the tokens after every block, and logits."""
        student, targets = self.student, [x.float() for x in teacher.features]
        y = start = student.embed(images) if self.is_whole else student.embed(images).detach()
        errors, classes = [], []
        for index, (block, target) in enumerate(zip(student.blocks, targets, strict=True)):
            if index % self.span == 0 and index:
                y = start = targets[index - 1]
            y = student.run_block(block, y)
            error, added = (y.float() - target).square(), (target - start.detach().float()).square()
            errors.append(error.mean() / added.mean())
            classes.append(error[:, 0].mean() / added[:, 0].mean())
        losses = torch.stack(errors)
        loss = self.tokens * (losses.sum() + self.class_token * torch.stack(classes).sum())
        logit = torch.zeros_like(loss)
        if self.is_whole:
            logits = student.head(student.pool(y)).float()
            logit = logit_distillation(logits, teacher.logits.float(), self.temperature)
            loss = loss + self.logit * logit
        return BlockTerms(loss, logit.detach(), losses.detach())
