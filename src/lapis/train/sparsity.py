"""Silence that is learned: the activity of each measuring point falls to its goal while the network trains.

A `Meter` counts the codes that quantizers see; a `Silencer` raises the least codes of the network, so that the share
of neurons that fire follows a schedule. The rest of the network learns to do without the spikes that are lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lapis.config import LeastCodes
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import ActivationQuantizer
from lapis.ops.lsq.eager import plain_codes
from lapis.train.distributed import Processes
from lapis.train.recipe import Sparsity

# Values that are counted per quantizer and batch: the activity is then known to about 0.2 %.
SAMPLE = 1 << 16


class Meter:
    """How often each magnitude |z| occurs, before a deadline silences any: counts (T + 1,) per point and block."""

    def __init__(self, model: LapisViT, processes: Processes) -> None:
        self.model, self.processes = model, processes
        self.counting = False
        self.counts: dict[tuple[str, int], Tensor] = {}
        self._names = {quantizer: (point, block) for block, point, quantizer in model.quantizers()}
        for quantizer in self._names:
            quantizer.meter = self._note

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

    @torch.no_grad()
    def _note(self, quantizer: ActivationQuantizer, x: Tensor) -> None:
        if not self.counting:
            return
        flat = x.detach().reshape(-1)
        # An odd stride visits every channel of an even-width activation.
        sample = flat[:: max(1, flat.numel() // SAMPLE) | 1]
        codes = plain_codes(sample, quantizer.step, quantizer.offset, quantizer.low, quantizer.high)
        counts = torch.bincount(codes.abs().long(), minlength=quantizer.high + 1).double()
        name = self._names[quantizer]
        self.counts[name] = self.counts[name] + counts if name in self.counts else counts


class Silencer:
    """Chooses the least codes of a network during training, from what a meter counted."""

    def __init__(self, model: LapisViT, sparsity: Sparsity, total: int) -> None:
        self.model, self.sparsity, self.total = model, sparsity, total
        self.goals = {point: goal for point, goal in sparsity.goals().items() if goal < 1}
        # The activity of the first weights, by point; known after the first step that is counted.
        self.first: dict[str, float] = {}

    def due(self, step: int) -> bool:
        """Whether least codes are chosen after this step."""
        return bool(self.goals) and step % self.sparsity.every == 0 and step <= self.sparsity.settle * self.total

    def update(self, step: int, counts: dict[str, Tensor]) -> None:
        if not self.first:
            self.first = activities(self.model, counts)
        share = min(1.0, step / max(1.0, self.sparsity.ramp * self.total))
        chosen: dict[str, Any] = {
            point: least_codes_for(counts[point], min(1.0, self.first[point] + share * (goal - self.first[point])))
            for point, goal in self.goals.items()
            if point in counts
        }
        kept = {name: value for name, value in vars(self.model.config.least_codes).items() if name not in chosen}
        self.model.set_least_codes(LeastCodes(**kept, **chosen))

    def state(self) -> dict[str, Any]:
        return {"first": self.first, "least_codes": dict(vars(self.model.config.least_codes))}

    def restore(self, state: dict[str, Any]) -> None:
        self.first = state["first"]
        self.model.set_least_codes(LeastCodes(**state["least_codes"]))


def activities(model: LapisViT, counts: dict[str, Tensor]) -> dict[str, float]:
    """The share of neurons that fire at each point under the network's present least codes."""
    found = {}
    for point, table in counts.items():
        fired = [table[block, model.config.least(point, block) :].sum() for block in range(len(table))]
        found[point] = float(torch.stack(fired).sum() / table.sum())
    return found


def mean_activity(activity: dict[str, float]) -> float:
    """The mean over the points that feed a layer; the relation compares q and k whether they fire or not."""
    shares = [share for point, share in activity.items() if point != "qk"]
    return sum(shares) / len(shares) if shares else 0.0


def least_codes_for(counts: Tensor, goal: float) -> tuple[int, ...]:
    """Least codes per block with which at most `goal` of the neurons of a point fire; counts (L, T + 1).

    Silencing the code z in a block loses z**2 of its power, mean z**2, for each spike that is saved. The cheapest
    codes of all blocks are silenced first.
    """
    depth, top = counts.shape[0], counts.shape[1] - 1
    squares = torch.arange(top + 1, dtype=counts.dtype).square()
    power = ((counts * squares).sum(dim=1) / counts.sum(dim=1)).clamp_min(1e-12)
    price = squares[1:top] / power[:, None]  # (L, T - 1): the code T always fires
    order = price.flatten().argsort(stable=True).tolist()
    least = [1] * depth
    firing, total = float(counts[:, 1:].sum()), float(counts.sum())
    for index in order:
        if firing <= goal * total:
            break
        block, code = divmod(index, top - 1)
        firing -= float(counts[block, code + 1])
        least[block] = code + 2
    return tuple(least)
