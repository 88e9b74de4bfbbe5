"""Stages of the engine, held against the multiplier's limit."""

from __future__ import annotations

import pytest

from lapis.bench.networks import SHAPES
from lapis.bench.stages import NETWORKS, stage_macs, stages
from lapis.runtime.engine import STAGES, peak_rate

pytestmark = pytest.mark.usefixtures("needs_kernels")


@pytest.mark.parametrize("network", NETWORKS)
def test_every_stage_is_timed_and_linear_ones_are_held_against_the_limit(network: str) -> None:
    rows = stages("tiny", network, 2)
    assert [row.stage for row in rows] == list(STAGES)
    assert {row.network for row in rows} == {network}
    linear = stage_macs(SHAPES["tiny"])
    for row in rows:
        assert (row.gmac_per_s is not None) == (row.stage in linear)
        if peak_rate() > 0:
            assert (row.share_of_limit is not None) == (row.stage in linear)
            assert row.share_of_limit is None or row.share_of_limit > 0


def test_macs_of_a_block_are_those_of_its_matrices() -> None:
    config = SHAPES["tiny"]
    d, hidden = config.width, config.hidden
    parameters = d * 3 * d + d * d + d * hidden + hidden * d
    assert sum(stage_macs(config).values()) == config.depth * config.tokens * parameters
