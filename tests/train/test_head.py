"""A new head answers for the new classes before any training."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from lapis.data.images import ArrayImages
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from lapis.train.finetune import PENALTY, _regress, fit_head
from tests.networks import small_config, small_model


def test_a_fitted_head_tells_classes_apart_that_the_network_sees() -> None:
    model, _ = small_model(small_config(classes=3, width=16))
    size = model.config.image_size
    draw = np.random.default_rng(0)
    labels = np.arange(60) % 3
    pixels = draw.integers(0, 60, (60, size, size, 3)) + 190 * np.eye(3)[labels][:, None, None, :]
    images = ArrayImages(pixels.clip(0, 255).astype(np.uint8), labels, ("red", "green", "blue"))
    body = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("head.")}
    fit_head(model, images, Preprocess(size))
    answers = model(normalise(torch.from_numpy(images.pixels), Preprocess(size))).argmax(dim=1)
    assert (answers.numpy() == labels).mean() > 0.9
    assert all(torch.equal(value, body[name]) for name, value in model.state_dict().items() if name in body)


def test_the_regression_ends_at_its_optimum() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(40, 5, generator=generator), torch.arange(40) % 4
    weight, bias = (part.clone().requires_grad_() for part in _regress(features, labels, 4))
    loss = F.cross_entropy(features @ weight.T + bias, labels) + PENALTY * weight.square().sum()
    loss.backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert float(weight.grad.abs().max()) < 1e-3
    assert float(bias.grad.abs().max()) < 1e-3
