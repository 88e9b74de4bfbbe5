"""A new classifier for a network that knows other classes: a logistic regression on the features it already computes.

It takes seconds, and training then starts from answers that are about right instead of from noise, which matters most
where images are few.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.data.images import Images, spread
from lapis.data.loader import TestBatches
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess

# More images hardly change a classifier of a few hundred weights per class.
MOST_IMAGES = 2000
BATCH = 50
# The penalty on squared weights, for features of unit variance; it keeps separable classes from growing without bound.
PENALTY = 1e-2
ITERATIONS = 100


@torch.no_grad()
def fit_head(
    model: LapisViT, images: Images, preprocess: Preprocess, progress: Callable[[int], None] = lambda done: None
) -> None:
    """Replace the weights of the network's head, from training images without augmentation.

    `progress` is told how many images have been seen.
    """
    seen: list[Tensor] = []
    labels: list[Tensor] = []
    device = model.eval().classifier.weight.device
    for batch in TestBatches(spread(images, MOST_IMAGES), preprocess, BATCH, device=device):
        if len(batch.pixels):
            tokens = model.forward_features(normalise(batch.pixels, preprocess))
            seen.append(model.forward_head(tokens, pre_logits=True).float())
            labels.append(batch.labels.to(device))
            progress(sum(map(len, labels)))
    features = torch.cat(seen)
    mean, deviation = features.mean(dim=0), features.std(dim=0).clamp_min(1e-6)
    weight, bias = _regress((features - mean) / deviation, torch.cat(labels), model.config.classes)
    weight = weight / deviation
    model.classifier.weight.copy_(weight)
    model.classifier.bias.copy_(bias - weight @ mean)


def _regress(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights (classes, D) and biases (classes,) of least cross entropy plus penalty; a convex problem."""
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        with torch.enable_grad():
            value = F.cross_entropy(features @ weight.T + bias, labels) + PENALTY * weight.square().sum()
            value.backward()
        return value

    solver.step(loss)
    return weight.detach(), bias.detach()
