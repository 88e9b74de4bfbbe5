"""Networks for timing fire as often as they say."""

from __future__ import annotations

import pytest

from benchmarks.networks import PAPER_ACTIVITY, SHAPES, random_images, sparse_network, sparse_network_dense
from benchmarks.synthetic import random_network, with_activity
from lapis.config import CodingByPoint, MinCodeByPoint
from lapis.deploy import integer
from lapis.errors import LapisError
from lapis.trace import POINTS, Point, Tally

CONFIG = SHAPES["tiny"].replace(depth=2)
# A threshold moves whole ties of equal sums, so shares are met to this.
NEAR = 0.02


def test_the_sparse_network_fires_at_the_activities_that_the_papers_energies_imply() -> None:
    assert 3 * PAPER_ACTIVITY["v"] + PAPER_ACTIVITY["readout"] == pytest.approx(1.25, abs=0.011)
    assert PAPER_ACTIVITY["mlp_in"] + PAPER_ACTIVITY["mlp_hidden"] == pytest.approx(0.31)
    network = sparse_network(CONFIG)
    tally = Tally()
    tally.add(integer.watch(network, random_images(CONFIG, 1)).trace)
    for point in POINTS:
        for block in range(CONFIG.depth):
            assert tally.activity(point, block) == pytest.approx(PAPER_ACTIVITY[point], abs=NEAR), (point, block)
    assert network.activity == {point: (share,) * CONFIG.depth for point, share in PAPER_ACTIVITY.items()}


def test_only_the_record_of_the_dense_twin_differs() -> None:
    image = random_images(CONFIG, 1)
    sparse, dense = sparse_network(CONFIG), sparse_network_dense(CONFIG)
    assert set(dense.activity.values()) == {(1.0,) * CONFIG.depth}
    assert (integer.run(sparse, image) == integer.run(dense, image)).all()


def test_signed_points_and_deadlines_reach_their_activity_too() -> None:
    coding = CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed")
    config = CONFIG.replace(coding=coding, min_code=MinCodeByPoint(4, 1, (5, 3), 2, 4, 2))
    image = random_images(config, 1)
    wanted: dict[Point, float] = {"attention_in": 0.31, "v": 0.31, "readout": 0.4, "mlp_in": 0.21, "mlp_hidden": 0.1}
    tally = Tally()
    tally.add(integer.watch(with_activity(random_network(config), wanted, image), image).trace)
    for point, share in wanted.items():
        assert tally.activity(point) == pytest.approx(share, abs=NEAR), point


def test_a_signed_hidden_layer_cannot_be_silenced_by_an_offset() -> None:
    config = CONFIG.replace(coding=CodingByPoint(mlp_hidden="signed"))
    with pytest.raises(LapisError, match="unsigned"):
        with_activity(random_network(config), {"mlp_hidden": 0.1}, random_images(config, 1))
