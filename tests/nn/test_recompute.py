"""Blocks that are computed again in the backward pass learn what plain blocks learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.nn import LapisViT
from lapis.nn.model import PatchEmbed, recomputing
from tests.networks import small_config, small_model

CHANGES: list[dict[str, Any]] = [
    {"row_scale": "exact", "readout": "real", "weight_bits": 32},
    {"style": "beit", "coding": {"v": "offset"}},
    {"relation": "gaussian", "row_scale": "exact", "mean_pool": True},
]


def gradients(network: LapisViT, autocast: bool = False) -> dict[str, Tensor]:
    """The loss and the gradient of every parameter that has one."""
    network.zero_grad()
    torch.manual_seed(7)
    images, labels = torch.randn(3, 3, 8, 8), torch.tensor([0, 2, 1])
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits, features = network.tap(images, (0,))
    loss = F.cross_entropy(logits.float(), labels) + features[0].square().mean()
    loss.backward()
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    return found | {"loss": loss.detach()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(value.equal(two[name]) for name, value in one.items())


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_blocks_that_are_computed_again_have_the_same_gradients_in_every_bit(
    changes: dict[str, Any], autocast: bool
) -> None:
    network, _ = small_model(small_config(**changes))
    network.train().set_drop_path_rate(0.5)
    plain = gradients(network, autocast)
    network.recompute = True
    assert same(plain, gradients(network, autocast))


def test_only_the_input_of_a_block_is_kept() -> None:
    network, _ = small_model(small_config(depth=2))
    counts = []
    for network.recompute in (False, True):
        kept: list[Tensor] = []

        def keep(tensor: Tensor, kept: list[Tensor] = kept) -> Tensor:
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            network(torch.randn(1, 3, 8, 8))
        counts.append(len(kept))
    assert counts[1] < counts[0] / 5


def test_a_block_knows_when_it_is_computed_again() -> None:
    network, _ = small_model(small_config(depth=1))
    network.recompute = True
    seen: list[bool] = []
    quantizer = network.blocks[0].attn.qk
    assert quantizer is not None
    quantizer.observer = lambda _, x: seen.append(recomputing())
    network(torch.randn(1, 3, 8, 8)).sum().backward()
    assert seen == [False, True]
    assert not recomputing()


def test_tokens_are_the_same_with_channels_last_and_need_no_copy() -> None:
    torch.manual_seed(0)
    embed = PatchEmbed(small_config(image_size=24, patch_size=8, width=16)).requires_grad_(False)
    images = torch.randn(2, 3, 24, 24)
    plain, last = embed(images), embed(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(plain, last, rtol=1e-5, atol=1e-6)  # sums in another order
    assert last.is_contiguous()
