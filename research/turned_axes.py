"""What turned axes are worth before any training: `python research/turned_axes.py --data DIR`.

Prints, for a deployed model as it is and turned (lapis.nn.symmetry), which share of the power of its values lies in the
smaller half of them, and its accuracy under deadlines that are chosen for a goal of activity: for each point alike, or
for all together where the answer suffers least (docs/results.md).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lapis import models
from lapis.config import MinCodeByPoint
from lapis.convert import from_model
from lapis.data.images import spread
from lapis.data.open import open_images, resized_batches
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import ActivationQuantizer
from lapis.nn.symmetry import rotate_basis
from lapis.runtime import Session
from lapis.train.distributed import Processes
from lapis.train.recipe import Sparsity
from lapis.train.sparsity import DeadlineScheduler

POINTS = ("attention_in", "v", "readout", "mlp_in")
GOALS = (1.0, 0.65, 0.5, 0.4)
CALIBRATION = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--model", default="lapis_tiny.cifar10_dense", help="a deployed model")
    parser.add_argument("--count", type=int, default=2000, help="test images")
    asked = parser.parse_args()
    opened = models.load(asked.model)
    preprocess = opened.preprocess
    few = spread(open_images(asked.data, "train"), CALIBRATION)
    images = normalise(torch.from_numpy(next(resized_batches(few, preprocess, CALIBRATION))[0]), preprocess)
    test = list(resized_batches(spread(open_images(asked.data, "test"), asked.count), preprocess, 100))
    for turned in (False, True):
        model = opened.torch().eval()
        if turned:
            rotate_basis(model, images)
        print("turned" if turned else "as it is")
        for point, share in small_power(model, images).items():
            print(f"  {point}: {share:.3f} of the power in the smaller half of the values")
        for weigh in (False, True):
            print("  where the answer suffers least" if weigh else "  each point alike")
            for goal in GOALS:
                silence(model, images, Sparsity(goal, v=goal, readout=goal, mlp_in=goal, sensitivity_weighted=weigh))
                session = Session(from_model(model, preprocess, opened.class_names))
                right = sum(int((session.run(pixels).argmax(axis=1) == labels).sum()) for pixels, labels in test)
                share = 100 * right / sum(len(labels) for _, labels in test)
                print(f"    activity at most {goal}: {share:.2f} %", flush=True)


@torch.no_grad()
def small_power(model: LapisViT, images: Tensor) -> dict[str, float]:
    """Which share of sum x^2 the smaller half of the values x holds, the mean over blocks, by point."""
    found: dict[str, list[float]] = defaultdict(list)
    names = {quantizer: point for _, point, quantizer in model.quantizers() if point in POINTS}

    def note(quantizer: ActivationQuantizer, x: Tensor) -> None:
        squares = np.sort(x.flatten().double().square().numpy())
        found[names[quantizer]].append(float(squares[: len(squares) // 2].sum() / squares.sum()))

    for quantizer in names:
        quantizer.observer = note
    model(images)
    for quantizer in names:
        quantizer.observer = None
    return {point: float(np.mean(shares)) for point, shares in found.items()}


@torch.no_grad()
def silence(model: LapisViT, images: Tensor, sparsity: Sparsity) -> None:
    """Give the network the minimum codes with which a run that has arrived at its goals would begin."""
    model.set_min_code(MinCodeByPoint())
    scheduler = DeadlineScheduler(model, sparsity, 1, Processes(0, 1, torch.device("cpu")), images)
    model.eval()
    scheduler.counter.start()
    model(images)
    counts = scheduler.counter.stop()
    if scheduler.goals:
        scheduler.move(1, counts)


if __name__ == "__main__":
    main()
