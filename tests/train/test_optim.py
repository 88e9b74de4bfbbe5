"""Who decays, how fast who learns, and the moving average."""

from __future__ import annotations

import pytest
import torch

from lapis.errors import LapisError
from lapis.nn import LapisViT
from lapis.train.optim import Average, learning_rate, make_optimizer, parameter_groups, set_learning_rate
from lapis.train.recipe import Optim
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


def test_steps_and_the_head_have_rates_of_their_own() -> None:
    model = LapisViT(SMALL)
    optimizer = make_optimizer(model, Optim(step_scale=10.0, head_scale=5.0))
    set_learning_rate(optimizer, 0.01)
    rate = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    by_name = {name: rate[id(parameter)] for name, parameter in model.named_parameters()}
    assert by_name["head.weight"] == by_name["head.bias"] == pytest.approx(0.05)
    assert by_name["blocks.0.attn.qk.log_step"] == pytest.approx(0.1)
    assert by_name["blocks.0.attn.relation.log_tau"] == pytest.approx(0.1)
    assert by_name["blocks.0.attn.qkv.weight"] == pytest.approx(0.01)


def test_relations_may_learn_faster_than_steps_and_do_not_by_default() -> None:
    model = LapisViT(SMALL)
    rates = []
    for optim in (Optim(step_scale=2.0), Optim(step_scale=2.0, relation_scale=30.0)):
        optimizer = make_optimizer(model, optim)
        set_learning_rate(optimizer, 0.01)
        by_id = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        rates.append({name: by_id[id(p)] for name, p in model.named_parameters()})
    changed = {name for name in rates[0] if rates[0][name] != rates[1][name]}
    assert changed == {"blocks.0.attn.relation.log_tau"}
    assert rates[0]["blocks.0.attn.relation.log_tau"] == pytest.approx(0.02)
    assert rates[1]["blocks.0.attn.relation.log_tau"] == pytest.approx(0.6)
    with pytest.raises(LapisError, match="relation_scale=-1"):
        Optim(relation_scale=-1)


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


def test_the_average_follows_its_equation() -> None:
    model = LapisViT(SMALL)
    average = Average(model, 0.75)
    before = average.model.classifier.weight.clone()
    with torch.no_grad():
        model.classifier.weight.add_(1.0)
    average.update(model)
    assert torch.allclose(average.model.classifier.weight, before + 0.25)
