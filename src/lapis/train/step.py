"""The optimizer, its learning rate, and one step on a global batch, of which this process has its share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lapis.data.loader import Batch
from lapis.errors import LapisError
from lapis.native import CodesError
from lapis.train.distributed import Processes
from lapis.train.objective import Teacher, Terms
from lapis.train.recipe import Optim
from lapis.train.sparsity import DeadlineScheduler, mean_activity

# Where AdamW updates all parameters in one kernel; "cuda" is torch's name for ROCm too.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")


def parameter_groups(named: Iterable[tuple[str, nn.Parameter]], optim: Optim) -> list[dict[str, Any]]:
    """Weight matrices decay; steps, taus, norms, biases, tokens and position tables do not.

    `scale` multiplies the scheduled learning rate of a group.
    """
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in named:
        if not parameter.requires_grad:
            continue
        module, last = ["", *name.split(".")][-2:]
        decays = last == "weight" and parameter.ndim >= 2 and module != "relation"
        scale = optim.head_scale if module == "head" else 1.0
        groups.setdefault((optim.weight_decay if decays else 0.0, scale), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "scale": scale} for (decay, scale), parameters in groups.items()
    ]


def make_optimizer(module: nn.Module, optim: Optim) -> torch.optim.AdamW:
    groups = parameter_groups(module.named_parameters(), optim)
    fused = all(parameter.device.type in FUSED_DEVICES for parameter in module.parameters())
    return torch.optim.AdamW(groups, lr=optim.lr, fused=fused)


def learning_rate(step: int, total: int, warmup: int, peak: float) -> float:
    """Linear to `peak` over the first `warmup` steps, then half a cosine to zero at `total`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def step_seconds(objective: nn.Module, teacher: Teacher | None, optim: Optim, images: Tensor, classes: int) -> float:
    """How long a step on these images takes; it changes no weight."""
    optimizer = torch.optim.AdamW(objective.parameters(), lr=0.0, weight_decay=0.0)
    targets = torch.full((len(images), classes), 1 / classes, device=images.device)
    for _ in range(2):  # the first pays for what is made once
        started = time.monotonic()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=optim.precision == "bf16"):
            terms = objective(images, targets, None if teacher is None else teacher(images))
        terms.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.monotonic() - started


class OptimizerStep:
    """Gradients of all parts, clipped; AdamW with the scheduled rate; then the deadlines move.

    `module` is the objective, with gradients that are averaged over the processes.
    """

    def __init__(
        self, optim: Optim, module: nn.Module, teacher: Teacher | None, optimizer: torch.optim.Optimizer,
        deadlines: DeadlineScheduler, processes: Processes, total: int, steps_per_epoch: int,
    ) -> None:  # fmt: skip
        self.optim, self.module, self.teacher, self.optimizer = optim, module, teacher, optimizer
        self.deadlines, self.processes, self.total, self.steps_per_epoch = deadlines, processes, total, steps_per_epoch

    def __call__(self, parts: tuple[Batch, ...], step: int, watch: bool) -> dict[str, Any]:
        """Take the step after `step` others; what the log writes of it, with the activity where it is watched."""
        optim = self.optim
        rate = learning_rate(step, self.total, round(optim.warmup_epochs * self.steps_per_epoch), optim.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.optimizer.zero_grad(set_to_none=True)
        self.deadlines.before_step(step, watch)
        values = torch.zeros(len(Terms._fields), device=self.processes.device)
        for index, part in enumerate(parts):
            # Gradients are averaged over processes once, with the last part.
            waiting = index < len(parts) - 1 and isinstance(self.module, DistributedDataParallel)
            with cast(DistributedDataParallel, self.module).no_sync() if waiting else nullcontext():
                terms = self._terms(part, step, f"{step}_{index * self.processes.world + self.processes.rank}")
                (terms.loss / len(parts)).backward()
            values += torch.stack([value.detach() for value in terms])
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), optim.clip or math.inf)
        self.optimizer.step()
        self.deadlines.after_step(step)
        means = dict(zip(Terms._fields, self.processes.mean(values / len(parts)).tolist(), strict=True))
        if not math.isfinite(means["loss"]):
            raise _diverged(means["loss"], step)
        row = {"step": step + 1, "epoch": (step + 1) / self.steps_per_epoch, "lr": rate, "grad_norm": float(norm)}
        return row | means | {"accuracy": 100 * means["right"], "activity": mean_activity(self.deadlines.activity)}

    def _terms(self, part: Batch, step: int, view: str) -> Terms:
        try:
            with torch.autocast(part.images.device.type, torch.bfloat16, enabled=self.optim.precision == "bf16"):
                teacher_output = None if self.teacher is None else self.teacher(part.images, view)
                terms: Terms = self.module(part.images, part.targets, teacher_output)
        except CodesError as error:
            # A quantizer's codes are integers unless its input is NaN, and then the loss is NaN too.
            raise _diverged(math.nan, step) from error
        return terms


def _diverged(loss: float, step: int) -> LapisError:
    return LapisError(
        f"the loss is {loss} at step {step + 1}; the state that was saved before is unchanged: start again with a "
        "lower optim.lr"
    )
