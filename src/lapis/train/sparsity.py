"""Silence that is learned: the activity of each measuring point falls to its goal while the network trains.

An `ActivityCounter` counts the codes that quantizers see, and a `DeadlineScheduler` raises the minimum codes of the
network, so that the share of values that spike follows a schedule. The rest of the network learns to do without the
spikes that are lost.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.config import MinCodeByPoint
from lapis.nn.model import LapisViT, recomputing
from lapis.nn.quantizer import ActivationQuantizer
from lapis.ops.lsq.eager import plain_codes
from lapis.train.distributed import Processes
from lapis.train.recipe import DRIVING, Sparsity

# Values that are counted per quantizer and batch: the activity is then known to about 0.2 %.
SAMPLE = 1 << 16
PROBED = 64
# Codes that fall silent where sensitivity is measured. The answers to fewer differ mostly by rounding.
CODES = 4


class ActivityCounter:
    """How often each magnitude |z| occurs before a deadline silences any, (T + 1,) per point and block."""

    def __init__(self, model: LapisViT, processes: Processes) -> None:
        self.model, self.processes = model, processes
        self.counting = False
        self.counts: dict[tuple[str, int], Tensor] = {}
        self._names = {quantizer: (point, block) for block, point, quantizer in model.quantizers()}
        for quantizer in self._names:
            quantizer.observer = self._note

    def start(self) -> None:
        self.counting, self.counts = True, {}

    def stop(self) -> dict[str, Tensor]:
        """Counts (L, T + 1) of every point, over all processes."""
        self.counting = False
        blocks, mean = range(self.model.config.depth), self.processes.mean
        points = dict.fromkeys(point for point, _ in self.counts)
        return {point: mean(torch.stack([self.counts[point, block] for block in blocks])) for point in points}

    @torch.no_grad()
    def _note(self, quantizer: ActivationQuantizer, x: Tensor) -> None:
        if not self.counting or recomputing():
            return
        flat, name = x.detach().reshape(-1), self._names[quantizer]
        # An odd stride visits every channel of an even-width activation.
        sample = flat[:: max(1, flat.numel() // SAMPLE) | 1]
        codes = plain_codes(sample, quantizer.step, quantizer.offset, quantizer.low, quantizer.high)
        # A NaN has no code; the loss is NaN too, and the run stops.
        counts = torch.bincount(codes.nan_to_num().abs().long(), minlength=quantizer.high + 1).double()
        self.counts[name] = self.counts[name] + counts if name in self.counts else counts


class DeadlineScheduler:
    """Watches the activity of a network in training, and moves its deadlines towards the goals.

    Call `before_step` and `after_step` around every optimizer step; `activity` is that of the last step that was
    counted. `images` are for measuring how much the answer suffers from silence, where the recipe asks for it.
    """

    def __init__(
        self, model: LapisViT, sparsity: Sparsity, total: int, processes: Processes, images: Tensor | None = None
    ) -> None:
        self.model, self.sparsity, self.total = model, sparsity, total
        self.counter = ActivityCounter(model, processes)
        self.activity: dict[str, float] = {}
        self.goals = {point: goal for point, goal in sparsity.goals().items() if goal < 1}
        # The activity of the first weights, by point; known after the first step that is counted.
        self.first: dict[str, float] = {}
        # How much the answer suffers from silence in each block, by point; empty where all are alike.
        self.weights: dict[str, Tensor] = {}
        if images is not None and sparsity.sensitivity_weighted and self.goals:
            images = images[:PROBED]
            self.counter.start()
            with torch.no_grad():
                model.eval()(images)
            counts = self.counter.stop()
            self.weights = sensitivities(model, images, {point: counts[point] for point in self.goals})
            model.train()

    def before_step(self, step: int, watch: bool) -> None:
        """Count in this step if its activity is wanted, or if deadlines move after it; help values that fall silent."""
        done, sparsity = step / self.total, self.sparsity
        for _, point, quantizer in self.model.quantizers():
            if quantizer.coding == "unsigned" and point != "mlp_hidden":  # GELU gives hardly a negative value
                quantizer.negative = max(0.0, 1 - done / sparsity.fade) if sparsity.fade else 0.0
                left = (1 - done) / (1 - sparsity.freeze_after) if sparsity.freeze_after < 1 else 1.0
                quantizer.silent_gradient = sparsity.silent_gradient * min(1.0, left)
        if watch or self.due(step):
            self.counter.start()

    def after_step(self, step: int) -> None:
        """Move the deadlines if it is time, and note the activity, of a step that was counted."""
        if self.counter.counting:
            counts = self.counter.stop()
            if self.due(step):
                self.move(step, counts)
            self.activity = activities(self.model, counts)

    def due(self, step: int) -> bool:
        """Whether deadlines move after this step."""
        return bool(self.goals) and step % self.sparsity.every == 0 and step <= self.sparsity.freeze_after * self.total

    def arrived(self, step: int) -> bool:
        """Whether the activity has come down to its goals; a network from before is not what was asked for."""
        return (not self.goals or self._share(step) == 1) and step >= self.sparsity.fade * self.total

    def move(self, step: int, counts: dict[str, Tensor]) -> None:
        """Choose the minimum codes with which the activity is what it may be after this step."""
        if not self.first:
            self.first = activities(self.model, counts)
        targets = {point: target for point, target in self.targets(step).items() if point in counts}
        chosen: dict[str, Any] = {point: min_code_for(counts[point], targets[point]) for point in targets}
        if self.weights:
            # All blocks of all points in one table, each as if it had as many neurons as the others.
            table = torch.cat([counts[point] / counts[point].sum(dim=1, keepdim=True) for point in targets])
            weights = torch.cat([self.weights[point] for point in targets]).to(table)
            codes = min_code_for(table, sum(targets.values()) / len(targets), weights)
            depth = self.model.config.depth
            chosen = {point: codes[depth * place : depth * (place + 1)] for place, point in enumerate(targets)}
        kept = {name: value for name, value in vars(self.model.config.min_code).items() if name not in chosen}
        self.model.set_min_code(MinCodeByPoint(**kept, **chosen))

    def targets(self, step: int) -> dict[str, float]:
        """The activity that each point with a goal may have after this step."""
        share = self._share(step)
        first = {point: self.first.get(point, 1.0) for point in self.goals}
        return {point: min(1.0, first[point] + share * (goal - first[point])) for point, goal in self.goals.items()}

    def _share(self, step: int) -> float:
        """How much of the way down is behind us: 0..1."""
        return min(1.0, step / max(1.0, self.sparsity.ramp * self.total))

    def state(self) -> dict[str, Any]:
        min_code = dict(vars(self.model.config.min_code))
        return {"first": self.first, "weights": self.weights, "min_code": min_code}

    def restore(self, state: dict[str, Any]) -> None:
        self.first, self.weights = state["first"], state["weights"]
        self.model.set_min_code(MinCodeByPoint(**state["min_code"]))


@torch.no_grad()
def choose_deadlines(model: LapisViT, sparsity: Sparsity, images: Tensor) -> None:
    """Give a network the minimum codes of its goals at once, from what its codes are on some images."""
    scheduler = DeadlineScheduler(model, sparsity, 1, Processes(0, 1, images.device), images)
    scheduler.counter.start()
    model.eval()(images)
    scheduler.move(1, scheduler.counter.stop())


def activities(model: LapisViT, counts: dict[str, Tensor]) -> dict[str, float]:
    """The share of values that spike at each point under the network's present minimum codes."""
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
    """Least codes per block with which at most `goal` of the values of a point spike; counts (L, T + 1).

    Silencing the code z in a block loses z**2 of its power, mean z**2, for each spike that is saved. The cheapest
    codes of all blocks are silenced first; weights (L,) say how much the power of each counts. The code T always fires.
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
