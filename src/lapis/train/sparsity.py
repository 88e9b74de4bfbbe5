"""Silence that is learned: the activity of each measuring point falls to its goal while the network trains.

A `Meter` counts the codes that quantizers see, a `Silencer` raises the minimum codes of the network (or shifts unsigned
values down), so that the share of neurons that fire follows a schedule, and a penalty pulls values that just fire below
their deadline. The rest of the network learns to do without the spikes that are lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis.config import LapisConfig, MinCodeByPoint
from lapis.energy.counts import INPUTS, OPERATORS, fan_out
from lapis.nn.lift import lower
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import ActivationQuantizer
from lapis.nn.recompute import recomputing
from lapis.ops.lsq.eager import plain_codes
from lapis.train.distributed import Processes
from lapis.train.recipe import DRIVING, Sparsity
from lapis.train.sensitivity import sensitivities

# Values that are counted per quantizer and batch: the activity is then known to about 0.2 %.
SAMPLE = 1 << 16
# The width of the smooth step that stands for firing in the penalty, in steps of the quantizer.
SOFTNESS = 0.5


class Meter:
    """What the quantizers of a network see in one training step.

    counts: how often each magnitude |z| occurs before a deadline silences any, (T + 1,) per point and block.
    """

    def __init__(self, model: LapisViT, processes: Processes) -> None:
        self.model, self.processes = model, processes
        self.counting = self.smoothing = self.comparing = False
        self.counts: dict[tuple[str, int], Tensor] = {}
        self._gaps: list[Tensor] = []
        self._smooth: dict[str, list[Tensor]] = {}
        self._names = {quantizer: (point, block) for block, point, quantizer in model.quantizers()}
        for quantizer in self._names:
            quantizer.observer = self._note

    def start(self) -> None:
        self.counting, self.counts = True, {}

    def stop(self) -> dict[str, Tensor]:
        """Counts (L, T + 1) of every point, over all processes."""
        self.counting = False
        points = dict.fromkeys(point for point, _ in self.counts)
        depth = self.model.config.depth
        return {
            point: self.processes.mean(torch.stack([self.counts[point, block] for block in range(depth)]))
            for point in points
        }

    def smooth_activities(self) -> dict[str, Tensor]:
        """mean sigmoid((|x| - (z0 - 1/2) s) / (s/2)) of each point since the last call: an activity with a gradient."""
        found = {point: torch.stack(parts).mean() for point, parts in self._smooth.items()}
        self._smooth = {}
        return found

    def query_key_gap(self) -> Tensor:
        """mean ((mean q - mean k) / (T s))**2 over blocks and channels since the last call, means over the tokens.

        It is 1 where queries and keys lie a whole window apart.
        """
        gap = torch.stack(self._gaps).mean()
        self._gaps = []
        return gap

    def _note(self, quantizer: ActivationQuantizer, x: Tensor) -> None:
        name, again = self._names[quantizer], recomputing()
        if self.comparing and name[0] == "qk" and torch.is_grad_enabled():
            q, k = x.mean(dim=(1, 3))  # (H, C) each, of (2, B, H, N, C)
            gap = ((q - k) / (quantizer.high * quantizer.step.detach())).square().mean()
            if not again:
                self._gaps.append(gap)
        if self.counting and not again:
            counts = _count(quantizer, x)
            self.counts[name] = self.counts[name] + counts if name in self.counts else counts
        if self.smoothing and torch.is_grad_enabled():
            level = (x if quantizer.offset is None else x - quantizer.offset) / quantizer.step
            above = (level.abs() if quantizer.low else level) - (quantizer.min_code - 0.5)
            share = torch.sigmoid(above / SOFTNESS).mean()
            # What is computed again must be the same operations, but its result is known already.
            if not again:
                self._smooth.setdefault(name[0], []).append(share)


@torch.no_grad()
def _count(quantizer: ActivationQuantizer, x: Tensor) -> Tensor:
    flat = x.detach().reshape(-1)
    # An odd stride visits every channel of an even-width activation.
    sample = flat[:: max(1, flat.numel() // SAMPLE) | 1]
    codes = plain_codes(sample, quantizer.step, quantizer.offset, quantizer.low, quantizer.high)
    # A NaN has no code; the loss is NaN too, and the run stops.
    return torch.bincount(codes.nan_to_num().abs().long(), minlength=quantizer.high + 1).double()


class Silencer:
    """Chooses the minimum codes of a network during training, from what a meter counted."""

    def __init__(self, model: LapisViT, sparsity: Sparsity, total: int) -> None:
        self.model, self.sparsity, self.total = model, sparsity, total
        # How dear silence is in each block, by point; empty where all are alike.
        self.weights: dict[str, Tensor] = {}
        self.goals = {point: goal for point, goal in sparsity.goals().items() if goal < 1}
        self.prices = spike_prices(model.config)
        # The activity of the first weights, by point; known after the first step that is counted.
        self.first: dict[str, float] = {}

    def weigh(self, images: Tensor, meter: Meter) -> None:
        """Measure how dear silence is, where the recipe asks for it."""
        if self.sparsity.weigh and self.goals:
            meter.start()
            with torch.no_grad():
                self.model.eval()(images)
            counts = meter.stop()
            self.weights = sensitivities(self.model, images, {point: counts[point] for point in self.goals})
            self.model.train()

    def due(self, step: int) -> bool:
        """Whether minimum codes are chosen after this step."""
        return bool(self.goals) and step % self.sparsity.every == 0 and step <= self.sparsity.settle * self.total

    def arrived(self, step: int) -> bool:
        """Whether the activity has come down to its goals; a network from before is not what was asked for."""
        return not self.goals or self._share(step) == 1

    def update(self, step: int, counts: dict[str, Tensor]) -> None:
        if not self.first:
            self.first = activities(self.model, counts)
        targets = {point: target for point, target in self.targets(step).items() if point in counts}
        if self.sparsity.rule == "top_k":
            self.model.set_top_k(min(targets.values()))
            return
        chosen: dict[str, Any] = self._chosen(counts, targets)
        if self.sparsity.rule == "lower":
            lower(self.model, chosen)
            return
        kept = {name: value for name, value in vars(self.model.config.min_code).items() if name not in chosen}
        self.model.set_min_code(MinCodeByPoint(**kept, **chosen))

    def _chosen(self, counts: dict[str, Tensor], targets: dict[str, float]) -> dict[str, tuple[int, ...]]:
        if not self.weights:
            return {point: min_code_for(counts[point], target) for point, target in targets.items()}
        # All blocks of all points in one table, each as if it had as many neurons as the others.
        table = torch.cat([counts[point] / counts[point].sum(dim=1, keepdim=True) for point in targets])
        weights = torch.cat([self.weights[point] for point in targets]).to(table)
        min_code = min_code_for(table, sum(targets.values()) / len(targets), weights)
        depth = self.model.config.depth
        return {point: min_code[depth * place : depth * (place + 1)] for place, point in enumerate(targets)}

    def targets(self, step: int) -> dict[str, float]:
        """The activity that each point with a goal may have after this step."""
        share = self._share(step)
        first = {point: self.first.get(point, 1.0) for point in self.goals}
        return {point: min(1.0, first[point] + share * (goal - first[point])) for point, goal in self.goals.items()}

    def penalty(self, step: int, smooth: dict[str, Tensor]) -> Tensor:
        """lambda sum_p w_p max(0, rho_p - target_p)**2, w_p the price of a spike, lambda growing from 0."""
        targets = self.targets(step)
        parts = [
            self.prices[point] * (smooth[point] - target).clamp_min(0).square()
            for point, target in targets.items()
            if point in smooth
        ]
        return self.sparsity.penalty * self._share(step) * torch.stack(parts).sum()

    def _share(self, step: int) -> float:
        """How much of the way down is behind us: 0..1."""
        return min(1.0, step / max(1.0, self.sparsity.ramp * self.total))

    def state(self) -> dict[str, Any]:
        config = self.model.config
        return {
            "first": self.first,
            "weights": self.weights,
            "min_code": dict(vars(config.min_code)),
            "top_k": config.top_k,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.first, self.weights = state["first"], state.get("weights", {})
        self.model.set_min_code(MinCodeByPoint(**state["min_code"]))
        self.model.set_top_k(state["top_k"])


def spike_prices(config: LapisConfig) -> dict[str, float]:
    """What a spike of each point costs beside one of an average point.

    Every target that a spike reaches is one accumulation, at the same picojoules: prices are proportional to fan-out.
    """
    reach = {
        "qk" if operator == "relation" else INPUTS[operator][0]: fan_out(config, operator) for operator in OPERATORS
    }
    mean = sum(reach.values()) / len(reach)
    return {point: targets / mean for point, targets in reach.items()}


def activities(model: LapisViT, counts: dict[str, Tensor]) -> dict[str, float]:
    """The share of neurons that fire at each point under the network's present minimum codes."""
    found = {}
    for point, table in counts.items():
        fired = [table[block, model.config.min_code_of(point, block) :].sum() for block in range(len(table))]
        found[point] = float(torch.stack(fired).sum() / table.sum())
    return found


def mean_activity(activity: dict[str, float]) -> float:
    """The mean over the points of DRIVING that are there."""
    shares = [activity[point] for point in DRIVING if point in activity]
    return sum(shares) / len(shares) if shares else 0.0


def min_code_for(counts: Tensor, goal: float, weights: Tensor | None = None) -> tuple[int, ...]:
    """Minimum codes per block with which at most `goal` of the neurons of a point fire; counts (L, T + 1).

    Silencing the code z in a block loses z**2 of its power, mean z**2, for each spike that is saved. The cheapest
    codes of all blocks are silenced first; weights (L,) say how dear the power of each is. The code T always fires.
    """
    depth, top = counts.shape[0], counts.shape[1] - 1
    squares = torch.arange(top + 1, dtype=counts.dtype, device=counts.device).square()
    power = ((counts * squares).sum(dim=1) / counts.sum(dim=1)).clamp_min(1e-12)
    price = squares[1:top] / power[:, None] * (1 if weights is None else weights[:, None])  # (L, T - 1)
    order = price.flatten().argsort(stable=True).tolist()
    min_code = [1] * depth
    firing, total = float(counts[:, 1:].sum()), float(counts.sum())
    for index in order:
        if firing <= goal * total:
            break
        block, code = divmod(index, top - 1)
        firing -= float(counts[block, code + 1])
        min_code[block] = code + 2
    return tuple(min_code)
