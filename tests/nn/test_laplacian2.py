"""The Laplacian in powers of two is stored as shifts, under its own name, and can be trained on from its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lapis.config import LapisConfig
from lapis.convert import from_model, to_model
from lapis.deploy import watch
from lapis.energy import CONVENTIONS, Activities, Mixing
from lapis.errors import LapisError
from lapis.nn.relations.table import Laplacian2, halving_distances
from lapis.ops.integer_attention.reference import AFFINITY_MAX
from lapis.pack import load, save
from lapis.relations import rule_of
from lapis.trace import POINTS
from tests.networks import small_config, small_model


def test_a_packed_laplacian2_keeps_its_name_and_stores_halvings(tmp_path: Path) -> None:
    model, images = small_model(small_config(relation="laplacian2"))
    network = from_model(model)
    save(tmp_path / "net.safetensors", network)
    packed = load(tmp_path / "net.safetensors")
    assert packed.config.relation == "laplacian2"
    stored, relation = packed.blocks[1].shift, model.blocks[1].attn.relation
    assert stored is not None
    assert isinstance(relation, Laplacian2)
    distance = torch.arange(stored.halvings.shape[1]).float()
    trained = relation.log_affinity(distance.expand(1, relation.heads, 1, -1))[0, :, 0].detach() / -np.log(2)
    assert (stored.halvings == trained.round().numpy()).all()
    assert (watch(packed, images).logits == watch(network, images).logits).all()


def test_every_affinity_that_an_executor_reads_is_a_power_of_two() -> None:
    network = from_model(small_model(small_config(relation="laplacian2"))[0])
    for tables in network.tables:
        # Entries below a row's nearest key are never read and stay at the maximum.
        read = tables.table[(tables.table > 0) & (tables.table < AFFINITY_MAX)].astype(np.int64)
        assert read.size
        assert (read & (read - 1) == 0).all()


def test_training_goes_on_from_the_packed_file() -> None:
    model, images = small_model(small_config(relation="laplacian2"))
    network = from_model(model)
    again = from_model(to_model(network), network.preprocess)
    for one, other in zip(network.blocks, again.blocks, strict=True):
        assert one.shift is not None
        assert other.shift is not None
        assert (one.shift.halvings == other.shift.halvings).all()
    one_answer, other_answer = watch(network, images), watch(again, images)
    assert all((one_answer.trace[key] == other_answer.trace[key]).all() for key in one_answer.trace)


@pytest.mark.parametrize("halving", [0.03, 0.4, 1.0, 3.7, 60.0, 1e4])
def test_the_halving_distance_is_found_from_its_halvings(halving: float) -> None:
    distance = np.arange(301)
    halvings = np.floor(distance / halving + 0.5).astype(np.uint16)[None]
    found = halving_distances(halvings)
    assert (np.floor(distance / found[:, None] + 0.5) == halvings).all()


def test_shifts_of_no_halving_distance_cannot_be_trained_on() -> None:
    model, _ = small_model(small_config(relation="laplacian2"))
    network = from_model(model)
    stored = network.blocks[0].shift
    assert stored is not None
    halvings = stored.halvings.copy()
    halvings[:, 1:] = 7
    object.__setattr__(stored, "halvings", halvings)
    with pytest.raises(LapisError, match="not round"):
        to_model(network)


def test_an_affinity_that_halves_too_often_is_refused() -> None:
    model, _ = small_model(small_config(relation="laplacian2"))
    relation = model.blocks[0].attn.relation
    assert isinstance(relation, Laplacian2)
    with torch.no_grad():
        relation.log_halving.fill_(-12)
    with pytest.raises(LapisError, match="a file holds 65535"):
        from_model(model)


def test_laplacian2_learns_as_an_unrounded_power_of_two() -> None:
    relation = small_model(small_config(relation="laplacian2"))[0].blocks[0].attn.relation
    assert isinstance(relation, Laplacian2)
    distance = torch.arange(40.0).expand(1, relation.heads, 1, 40).clone().requires_grad_()
    log_a = relation.log_affinity(distance)
    assert ((log_a.detach() / np.log(2)).round() * np.log(2) - log_a).abs().max() < 1e-5
    log_a.sum().backward()
    half = relation.halving.detach()
    assert distance.grad is not None
    torch.testing.assert_close(distance.grad, (-np.log(2) / half).expand_as(distance).contiguous())
    # ln A = -D/m ln 2 by ln m.
    torch.testing.assert_close(relation.log_halving.grad, (np.log(2) * 780 / half).flatten())


def test_the_operations_of_powers_of_two_are_those_counted_by_hand() -> None:
    """N = 5, D = 8, H = 2: N^2 D = 200, H N^2 = 50; half of the queries, keys and values spike."""
    config = LapisConfig(
        image_size=32, patch_size=16, width=8, heads=2, depth=1, relation="laplacian2", row_scale="pow2"
    )
    activities = Activities.uniform(config, dict.fromkeys(POINTS, 0.5))
    counted = {
        name: [
            (row.operator, row.kind, row.count)
            for row in rule_of("laplacian2").operations(Mixing(config, 0, activities, CONVENTIONS[name]))
        ]
        for name in ("paper", "strict", "deployed")
    }
    assert counted["paper"] == [
        ("relation", "accumulate", 200), ("affinity", "shift", 50), ("row scale", "shift", 50),
        ("value shift", "shift", 100), ("value", "accumulate", 100),
    ]  # fmt: skip
    # A power of two is a shift where another weight is a multiplication.
    assert counted["strict"][-2:] == [("value shift", "shift", 100), ("value", "accumulate", 100)]
    assert counted["deployed"][-1] == ("value", "integer_accumulate", 100)
