"""A whole network with the GPU kernels: forward, loss and every gradient are those of the CPU path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lapis import native
from lapis.nn import LapisViT, calibrate
from lapis.ops.gpu import choice
from tests.networks import small_config

# Of the largest entry of each gradient: float32, in another order, through two blocks.
TOLERANCE = 2e-4


def gradients(model: LapisViT, images: Tensor, labels: Tensor, way: str) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and the gradient of every parameter, with GPU kernels or without."""
    model.zero_grad()
    with choice.force(way):
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "changes",
    [{"row_scale": "exact"}, {"row_scale": "pow2", "style": "beit", "weight_bits": 6}],
    ids=lambda changes: changes["row_scale"],
)
def test_a_network_of_two_blocks_learns_the_same(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = small_config(depth=2, image_size=16, patch_size=8, width=16, heads=2, classes=3).replace(**changes)
    model = LapisViT(config)
    source = torch.Generator().manual_seed(1)
    images, labels = torch.randn(2, 3, 16, 16, generator=source), torch.tensor([0, 2])
    with choice.force("eager"):
        calibrate(model, images)
    mine, theirs = (gradients(model, images, labels, way) for way in ("words", "eager"))
    torch.testing.assert_close(mine[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert mine[1].keys() == theirs[1].keys()
    assert any("log_tau" in name for name in mine[1])
    for name, wanted in theirs[1].items():
        error = (mine[1][name] - wanted).abs().max()
        assert error <= TOLERANCE * wanted.abs().max().clamp_min(1e-6), f"{name}: {float(error)}"


def test_the_kernels_really_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapis.ops.attention import triton

    calls: list[object] = []
    forward = triton.attention

    def counted(inputs: Any) -> Any:
        calls.append(inputs)
        return forward(inputs)

    monkeypatch.setattr(triton, "attention", counted)
    model = LapisViT(small_config(depth=2, image_size=16, patch_size=8, width=16, heads=2, classes=3))
    images = torch.randn(1, 3, 16, 16)
    with torch.no_grad(), native.force(native.NONE):
        calibrate(model, images)
        calls.clear()
        model(images)
    assert len(calls) == model.config.depth
