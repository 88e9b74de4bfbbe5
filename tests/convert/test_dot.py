"""Relation `dot`, the control: trained on codes, converted exactly, run and shown, and refused where it cannot run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lapis import native
from lapis.cli import main
from lapis.config import CodingByPoint
from lapis.convert import TorchExecutor, from_model, to_model
from lapis.deploy import integer
from lapis.deploy.network import check_deployable
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK, LapisError
from lapis.nn import LapisViT, calibrate, save_network
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import required
from lapis.nn.relations import with_tau
from lapis.pack import save
from lapis.preprocess import Preprocess
from lapis.report.page.explain import explain_network
from lapis.report.page.live import live_payload
from lapis.report.page.page import render
from tests.networks import images_for, small_config, small_model, wide_network

CONFIG = small_config(classes=10, width=12, relation="dot", coding=CodingByPoint.all("signed"))
# The search for a time constant goes in steps of an eighth of its logarithm.
SEARCH_STEP = 0.25


def test_a_trained_network_has_the_integers_of_its_conversion() -> None:
    model, images = small_model(CONFIG)
    relation = with_tau(model.blocks[0].attn.relation)
    before = relation.log_tau.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        logits = model(normalise(torch.from_numpy(images), Preprocess(CONFIG.image_size)))
        F.cross_entropy(logits, torch.arange(3)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert bool((relation.log_tau != before).all())
    network = from_model(model)
    want = integer.watch(network, images)
    logits, trace = TorchExecutor(network).watch(torch.from_numpy(images))
    assert (logits.numpy() == want.logits).all()
    assert all((trace[key] == want.trace[key]).all() for key in want.trace)
    again = integer.watch(from_model(to_model(network)), images)
    assert (again.trace[0, "q"] == want.trace[0, "q"]).all()


def test_time_constants_start_where_attention_is_a_softmax() -> None:
    config = CONFIG.replace(window=63, row_scale="exact", weight_bits=32, width=64, depth=1)
    torch.manual_seed(0)
    model = LapisViT(config)
    with torch.no_grad():
        model.blocks[0].attn.qkv.weight.normal_(std=0.4)
    calibrate(model, torch.randn(4, 3, config.image_size, config.image_size))
    attn = model.blocks[0].attn
    softmax = math.sqrt(config.head_width) / float(required(attn.qk).step.detach()) ** 2
    assert (with_tau(attn.relation).log_tau - math.log(softmax)).abs().max() < SEARCH_STEP


def test_a_table_ends_where_affinities_do() -> None:
    network = wide_network(relation="dot", coding=CodingByPoint.all("signed"))
    for tables in network.tables:
        assert tables.table.shape[1] == 1
        assert tables.table[..., -1].max() == 0 < tables.table[..., -2].max()
        assert (tables.table[:, 0, 0] == 1 << 14).all()


def test_styles_with_position_delays_are_refused() -> None:
    with pytest.raises(LapisError, match="relation='dot' has no place for the position delays of style='beit'"):
        check_deployable(small_config(relation="dot", style="beit"))


def test_commands_run_what_there_is_and_refuse_spikes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, packed = tmp_path / "trained.safetensors", tmp_path / "packed.safetensors"
    model, _ = small_model(CONFIG)
    save_network(checkpoint, model, {"dataset": "cifar10"})
    save(packed, from_model(model))
    for file, executors in ((checkpoint, {"integers", "stages", "trained", "float"}), (packed, {"integers"})):
        assert main(["verify", str(file), "-n", "2", "--json", "--quiet"]) == EXIT_OK
        record = json.loads(capsys.readouterr().out)
        assert set(record["executors"]) - {"native"} == executors
        assert ("native" in record["executors"]) == native.available()
    for command in (["simulate", str(packed), "-n", "1"], ["verify", str(packed), "--only", "spikes", "-n", "1"]):
        assert main(command) == EXIT_BAD_INPUT
        assert "multiplies queries by keys, which first spikes cannot do" in capsys.readouterr().err


def test_a_page_shows_recorded_weights_and_a_live_page_says_that_it_cannot() -> None:
    network = wide_network(relation="dot", depth=1)
    explained = explain_network(network, images_for(network, 1)[0], evidence=False)
    assert explained.attention.recorded is not None
    weights = explained.attention.recorded[0]
    assert weights is not None
    mass = weights.sum(axis=-1)
    assert ((mass >= math.sqrt(0.5)) & (mass <= math.sqrt(2))).all()
    q, k = (integer.split_heads(explained.trace[0, point], 3).astype(np.int64)[0] for point in ("q", "k"))
    best = np.take_along_axis(weights, (q @ k.transpose(0, 2, 1)).argmax(-1)[..., None], -1)[..., 0]
    assert (best == weights.max(axis=-1)).all()
    assert "recorded" in render(explained)
    with pytest.raises(LapisError, match="`lapis explain` shows such a network on one picture"):
        live_payload(network, b"", "dot", [])
