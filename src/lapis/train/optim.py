"""AdamW with parameter groups, and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lapis.train.recipe import Optim

# Quantizer steps and offsets, which like all that a relation learns have no weight decay.
STEP_NAMES = ("log_step", "offset")
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
        last = name.rsplit(".", 1)[-1]
        is_step = last in STEP_NAMES or _of(name, "relation")
        decays = last == "weight" and parameter.ndim >= 2 and not is_step
        scale = optim.head_scale if _of(name, "head") else 1.0
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


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]


def _of(name: str, module: str) -> bool:
    parts = name.split(".")
    return len(parts) >= 2 and parts[-2] == module
