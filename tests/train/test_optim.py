"""Who decays, and how fast who learns."""

from __future__ import annotations

import pytest

from lapis.nn import LapisViT
from lapis.train.recipe import Optim
from lapis.train.step import learning_rate, make_optimizer, parameter_groups
from tests.networks import small_config

SMALL = small_config(style="beit", width=8, depth=1)  # fmt: skip


def test_only_weight_matrices_decay() -> None:
    model = LapisViT(SMALL)
    groups = parameter_groups(model.named_parameters(), Optim(weight_decay=0.1))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {
        "patch_embed.proj.weight", "head.weight", "blocks.0.attn.qkv.weight", "blocks.0.attn.proj.weight",
        "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight",
    }  # fmt: skip
    assert sum(len(group["params"]) for group in groups) == len(names)


def test_the_head_has_a_rate_of_its_own() -> None:
    model = LapisViT(SMALL)
    optimizer = make_optimizer(model, Optim(head_scale=5.0))
    rate = {id(parameter): group["scale"] for group in optimizer.param_groups for parameter in group["params"]}
    by_name = {name: rate[id(parameter)] for name, parameter in model.named_parameters()}
    assert by_name["head.weight"] == by_name["head.bias"] == 5.0
    assert by_name["blocks.0.attn.qk.log_step"] == 1.0
    assert by_name["blocks.0.attn.relation.log_tau"] == 1.0
    assert by_name["blocks.0.attn.qkv.weight"] == 1.0


def test_an_update_is_one_kernel_where_the_device_has_it() -> None:
    model = LapisViT(SMALL)
    assert make_optimizer(model, Optim()).defaults["fused"] is True
    assert make_optimizer(model.to("meta"), Optim()).defaults["fused"] is False


def test_the_rate_rises_to_its_peak_and_falls_to_zero() -> None:
    rates = [learning_rate(step, 100, 10, 2.0) for step in range(101)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(0, 10, 0, 2.0) == 2.0
